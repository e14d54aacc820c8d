package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	"github.com/iop-dev/iop/edge/config"
)

// Where a command looks for an Edge and a token that no flag names.
const (
	edgeEnv  = "IOP_EDGE"
	tokenEnv = "IOP_ADMIN_TOKEN"
)

// callLimit is the longest that an Edge may take to answer. It says nothing
// about how long a command may wait for people.
const callLimit = 30 * time.Second

// edgeFlags are the flags of the commands that call a running Edge.
type edgeFlags struct {
	url       string
	file      string
	tokenFile string
	caFile    string
}

func (f *edgeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "edge", "", "`URL` of the Edge's admin listener (default: $"+edgeEnv+", else what -c says, else http://"+config.DefaultListen+")")
	flags.StringVarP(&f.file, "config", "c", "", "the Edge's configuration, which tells where it listens")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the admin token (default: $"+tokenEnv+")")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM `file` to trust the Edge by (default: edge.tls.cert_file of -c, else the system's)")
}

// edgeCaller reaches one Edge.
type edgeCaller struct {
	url    string
	token  string
	client *http.Client
}

// caller finds the Edge and the token.
func (f *edgeFlags) caller() (*edgeCaller, error) {
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	base, ca := f.url, f.caFile
	if base == "" {
		base = os.Getenv(edgeEnv)
	}
	var at config.Location
	if f.file != "" {
		if at, err = config.Locate(f.file); err != nil {
			return nil, &exitError{exitRefused, fmt.Errorf("to find the Edge by -c (or name it by --edge URL): %w", err)}
		}
		if ca == "" {
			ca = at.CertFile
		}
	}
	switch {
	case base != "":
	case f.file != "":
		if base, err = adminURL(at); err != nil {
			return nil, err
		}
	default:
		base = "http://" + config.DefaultListen
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("the Edge's URL %q: expected http://host:port or https://host:port", base)
	}
	transport := &http.Transport{Proxy: nil}
	if u.Scheme == "https" && ca != "" {
		if transport.TLSClientConfig, err = trust(ca, u.Hostname()); err != nil {
			return nil, &exitError{exitRefused, err}
		}
	}
	return &edgeCaller{strings.TrimSuffix(base, "/"), token, &http.Client{Transport: transport, Timeout: callLimit}}, nil
}

func (f *edgeFlags) token() (string, error) {
	if f.tokenFile == "" {
		if token := strings.TrimSpace(os.Getenv(tokenEnv)); token != "" {
			return token, nil
		}
		return "", usagef("this needs an admin token (edge.admin_tokens): --token-file FILE, or $%s", tokenEnv)
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", &exitError{exitRefused, fmt.Errorf("--token-file: %w", err)}
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", &exitError{exitRefused, fmt.Errorf("--token-file %s: expected one token and nothing else", f.tokenFile)}
	}
	return token, nil
}

// adminURL is where an Edge with this configuration can be reached from its own
// machine.
func adminURL(at config.Location) (string, error) {
	host, port, err := net.SplitHostPort(at.AdminListen)
	if err != nil || port == "0" {
		return "", usagef("the Edge listens on %q, which tells no port: name it by --edge URL, as its log does", at.AdminListen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if at.TLS {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// trust accepts certificates of a PEM file: an authority's, or the Edge's own.
// One of the latter kind is known by itself, under whatever name the Edge is
// called here.
func trust(file, host string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificate to trust the Edge by: %w", err)
	}
	block, _ := pem.Decode(text)
	pool := x509.NewCertPool()
	if block == nil || !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificate to trust the Edge by: %s has none in PEM form", file)
	}
	c := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	first, err := x509.ParseCertificate(block.Bytes)
	if err == nil && !first.IsCA && first.VerifyHostname(host) != nil {
		switch {
		case len(first.DNSNames) > 0:
			c.ServerName = strings.Replace(first.DNSNames[0], "*", "edge", 1)
		case len(first.IPAddresses) > 0:
			c.ServerName = first.IPAddresses[0].String()
		}
	}
	return c, nil
}

// bearer is the context and the options of one call.
func (e *edgeCaller) bearer(ctx context.Context) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+e.token)
	return ctx
}

// failed says what to do about a call that failed.
func (e *edgeCaller) failed(err error) error {
	defer e.client.CloseIdleConnections()
	var answer *connect.Error
	var dial *net.OpError
	var untrusted *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of the Edge at %s is not trusted: give --ca-file FILE, with that certificate (edge.tls.cert_file) or its authority's (%w)", e.url, untrusted.Err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no Edge answers at %s: is it running, and is this its admin listener? Name it by --edge URL, $%s or -c edge.yaml (%w)", e.url, edgeEnv, dial.Err)
	case !errors.As(err, &answer):
		return fmt.Errorf("call to the Edge at %s: %w", e.url, err)
	}
	if strings.HasPrefix(e.url, "http:") && answer.Message() == "400 Bad Request" {
		// What a TLS listener says to plain HTTP, and no admin API to a call.
		return fmt.Errorf("what answers at %s refuses plain HTTP: an Edge with edge.tls speaks TLS; name it by --edge https://%s, with --ca-file FILE unless this machine trusts its certificate already",
			e.url, strings.TrimPrefix(e.url, "http://"))
	}
	switch answer.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return &exitError{exitRefused, fmt.Errorf("the Edge at %s refuses the token: it must be one of its edge.admin_tokens (a read token may not change anything)", e.url)}
	case connect.CodeUnimplemented, connect.CodeUnknown:
		return fmt.Errorf("what answers at %s has no admin API: is this the Edge's admin_listen? (%s)", e.url, answer.Message())
	case connect.CodeDeadlineExceeded:
		return fmt.Errorf("the Edge at %s does not answer within %s", e.url, callLimit)
	case connect.CodeUnavailable:
		return fmt.Errorf("call to the Edge at %s: %s", e.url, answer.Message())
	}
	return errors.New(answer.Message())
}
