package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	"github.com/iop-dev/iop/cmd/iop/up"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// Where a command looks for an Edge and a token that no flag names.
const (
	edgeEnv      = "IOP_EDGE"
	tokenEnv     = "IOP_ADMIN_TOKEN"
	readTokenEnv = "IOP_READ_TOKEN"
)

// role is what a command needs a token for.
type role int

const (
	administrator role = iota // edge.admin_tokens
	reader                    // those, and edge.read_tokens
)

// tokens are where a token of this role is looked for, and what it must be.
func (r role) tokens() (env []string, kind string) {
	if r == reader {
		return []string{readTokenEnv, tokenEnv}, "edge.read_tokens or edge.admin_tokens"
	}
	return []string{tokenEnv}, "edge.admin_tokens"
}

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

func (f *edgeFlags) register(flags *pflag.FlagSet, r role) {
	env, kind := r.tokens()
	flags.StringVar(&f.url, "edge", "", "`URL` of the Edge's admin listener (default: $"+edgeEnv+", else what -c says, else http://"+config.DefaultListen+")")
	flags.StringVarP(&f.file, "config", "c", "", "the Edge's configuration, which tells where it listens")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with a token of "+kind+" (default: $"+strings.Join(env, ", else $")+", else that of iop up)")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM `file` to trust the Edge by (default: edge.tls.cert_file of -c, else the system's)")
}

// edgeCaller reaches one Edge.
type edgeCaller struct {
	url    string
	token  string
	role   role
	client *http.Client
	seen   *seen
}

// caller finds the Edge and the token.
func (f *edgeFlags) caller(r role) (*edgeCaller, error) {
	var err error
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
	token, err := f.token(r, u)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: nil, ForceAttemptHTTP2: true}
	if u.Scheme == "https" && ca != "" {
		if transport.TLSClientConfig, err = trust(ca, u.Hostname()); err != nil {
			return nil, &exitError{exitRefused, err}
		}
	}
	e := &edgeCaller{url: strings.TrimSuffix(base, "/"), token: token, role: r, seen: &seen{next: transport}}
	e.client = &http.Client{
		Transport: e.seen, Timeout: callLimit,
		// A token is for the named address alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// token is the token for the Edge at u.
func (f *edgeFlags) token(r role, u *url.URL) (string, error) {
	if f.tokenFile == "" {
		env, kind := r.tokens()
		for _, name := range env {
			if token := tokenOf(name); token != "" {
				return token, nil
			}
		}
		if token := localToken(u); token != "" {
			return token, nil
		}
		return "", usagef("this needs a token of %s: --token-file FILE, or $%s", kind, strings.Join(env, " or $"))
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

// tokenOf is the token that an environment variable holds.
func tokenOf(env string) string { return strings.TrimSpace(os.Getenv(env)) }

// localToken is the token that "iop up" keeps for its user: for an Edge of this
// machine, if there is one.
func localToken(u *url.URL) string {
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	dir, err := stateFolder("")
	if err != nil {
		return ""
	}
	return up.KnownAdminToken(dir)
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

func (e *edgeCaller) control() controlv1connect.ControlServiceClient {
	return controlv1connect.NewControlServiceClient(e.client, e.url)
}

func (e *edgeCaller) admin() adminv1connect.AdminServiceClient {
	return adminv1connect.NewAdminServiceClient(e.client, e.url)
}

// snapshot is the Edge's present state.
func (e *edgeCaller) snapshot(ctx context.Context) (*controlv1.EdgeNodeSnapshot, error) {
	res, err := e.control().GetEdgeNodeSnapshot(e.bearer(ctx), &controlv1.GetEdgeNodeSnapshotRequest{})
	return res.GetSnapshot(), err
}

// bearer is the context and the options of one call.
func (e *edgeCaller) bearer(ctx context.Context) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+e.token)
	return ctx
}
