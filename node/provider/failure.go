package provider

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

const (
	neverOpened  = runtimev1.FailureCode_FAILURE_CODE_NEVER_OPENED
	busy         = runtimev1.FailureCode_FAILURE_CODE_PROVIDER_BUSY
	unreachable  = runtimev1.FailureCode_FAILURE_CODE_PROVIDER_UNREACHABLE
	disconnected = runtimev1.FailureCode_FAILURE_CODE_PROVIDER_DISCONNECTED
	timeout      = runtimev1.FailureCode_FAILURE_CODE_PROVIDER_TIMEOUT
	cancelled    = runtimev1.FailureCode_FAILURE_CODE_CANCELLED
)

// failure is the Failure of an exchange.
func failure(code runtimev1.FailureCode, format string, args ...any) *runtimev1.Failure {
	return &runtimev1.Failure{Code: code, Message: fmt.Sprintf(format, args...)}
}

// failed is the final frame of an exchange without a whole answer.
func failed(code runtimev1.FailureCode, format string, args ...any) *Frame {
	return &Frame{Failure: failure(code, format, args...)}
}

// describe says what went wrong on a connection. Errors of unknown kinds get one
// fixed phrase, because net/http quotes what a server sent in some of them.
func describe(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var slow net.Error
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		return dns.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused; is the server running?"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the server reset the connection"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the server closed the connection"
	case errors.As(err, &unknownAuthority), errors.As(err, &hostname), errors.As(err, &invalid):
		return err.Error()
	case errors.As(err, &record):
		return "the server does not speak TLS; use http:// in base_url"
	case errors.As(err, &slow) && slow.Timeout():
		return "no connection in time"
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return "the server broke off or sent something that is not HTTP"
}
