package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/services/rpcerr"
)

// seen is a transport that remembers what the last reply was like.
type seen struct {
	next interface {
		http.RoundTripper
		CloseIdleConnections()
	}
	last atomic.Pointer[reply]
}

// reply is what tells an Edge's from another server's.
type reply struct {
	edge   bool
	status string
	server string
}

func (s *seen) RoundTrip(r *http.Request) (*http.Response, error) {
	s.last.Store(nil)
	res, err := s.next.RoundTrip(r)
	if err == nil {
		s.last.Store(&reply{edge: res.Header.Get("X-Iop-Edge") != "", status: res.Status, server: res.Header.Get("Server")})
	}
	return res, err
}

// CloseIdleConnections is http.Client's.
func (s *seen) CloseIdleConnections() { s.next.CloseIdleConnections() }

// failed says what is wrong with a call, where, and what to do about it.
func (e *edgeCaller) failed(err error) error {
	var coded *exitError
	var answer *connect.Error
	var dial *net.OpError
	var untrusted *tls.CertificateVerificationError
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of the Edge at %s is not trusted: give --ca-file FILE, with that certificate (edge.tls.cert_file) or its authority's (%w)", e.url, untrusted.Err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no Edge answers at %s: is it running, and is this its admin listener? Name it by --edge URL, $%s or -c edge.yaml (%w)", e.url, edgeEnv, dial.Err)
	case !errors.As(err, &answer):
		return fmt.Errorf("call to the Edge at %s: %w", e.url, err)
	}
	switch last := e.seen.last.Load(); {
	case last != nil && !last.edge:
		return e.stranger(last, answer)
	case last == nil && answer.Code() != connect.CodeDeadlineExceeded:
		return fmt.Errorf("call to the Edge at %s: %s", e.url, answer.Message())
	}
	switch answer.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		_, kind := e.role.tokens()
		hint := ""
		if e.role == administrator {
			hint = " (a read token may not change anything)"
		}
		return &exitError{exitRefused, fmt.Errorf("the Edge at %s refuses the token: it must be one of its %s%s", e.url, kind, hint)}
	case connect.CodeUnimplemented, connect.CodeUnknown:
		return fmt.Errorf("the Edge at %s has no such call here: is this its admin_listen, and is it as new as this iop? (%s)", e.url, cmp.Or(answer.Message(), answer.Code().String()))
	case connect.CodeDeadlineExceeded:
		return fmt.Errorf("the Edge at %s does not answer within %s", e.url, callLimit)
	case connect.CodeUnavailable:
		return fmt.Errorf("call to the Edge at %s: %s", e.url, answer.Message())
	}
	if answer.Message() == rpcerr.ErrRequestUnknown.Error() {
		return fmt.Errorf("%s; \"iop requests --ended\" lists them", answer.Message())
	}
	return errors.New(answer.Message())
}

// stranger is about a reply that no Edge has made.
func (e *edgeCaller) stranger(last *reply, answer *connect.Error) error {
	who := "what answers"
	if last.server != "" {
		who = fmt.Sprintf("what answers (%s)", last.server)
	}
	switch {
	case strings.HasPrefix(e.url, "http:") && answer.Message() == "400 Bad Request":
		// What a TLS listener says to plain HTTP, and no admin API to a call.
		return fmt.Errorf("what answers at %s refuses plain HTTP: an Edge with edge.tls speaks TLS; name it by --edge https://%s, with --ca-file FILE unless this machine trusts its certificate already",
			e.url, strings.TrimPrefix(e.url, "http://"))
	case strings.HasPrefix(last.status, "502") || strings.HasPrefix(last.status, "503") || strings.HasPrefix(last.status, "504"):
		return fmt.Errorf("%s at %s is a proxy that does not reach the Edge (%s): start the Edge, or name its own admin listener by --edge URL", who, e.url, last.status)
	case strings.HasPrefix(last.status, "401") || strings.HasPrefix(last.status, "403") || strings.HasPrefix(last.status, "407"):
		return &exitError{exitRefused, fmt.Errorf("%s at %s is no Edge and refuses the call (%s): name the Edge's own admin listener by --edge URL", who, e.url, last.status)}
	}
	return fmt.Errorf("%s at %s is no Edge, or a proxy before one that does not let its API through (%s): name the Edge's admin listener by --edge URL, $%s or -c edge.yaml",
		who, e.url, last.status, edgeEnv)
}
