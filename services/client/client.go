package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// Options say what to call, and how.
type Options struct {
	// URL is http://host:port, spoken to in HTTP/2 without TLS (h2c), or
	// https://host:port.
	URL string
	// Secret is an API key, a read token or an admin token, as the calls need it.
	Secret string
	// Pin is the SHA-256 of the server's certificate in hexadecimal: it is then
	// accepted whatever its name, dates and issuer. Empty = RootCAs decide.
	Pin string
	// RootCAs are who may vouch for the server's certificate; nil = the system's.
	RootCAs *x509.CertPool
	// Connect is more options for each client, such as connect.WithGRPC(), or
	// connect.WithReadMaxBytes in the place of 64 MiB for one message.
	Connect []connect.ClientOption
}

// Client has the services that one address may serve. Which of them it does depends
// on the server and its listener; the others answer unimplemented.
type Client struct {
	Inference inferencev1connect.InferenceServiceClient
	Control   controlv1connect.ControlServiceClient
	Admin     adminv1connect.AdminServiceClient
	Fleet     fleetv1connect.FleetServiceClient

	transport *http.Transport
}

// silence is how long nothing may come before the server is asked for a sign of
// life, and how long that may take: a watch over a dead connection ends.
const silence = 15 * time.Second

// maxMessage bounds one message of a server, in bytes, unpacked.
const maxMessage = 64 << 20

// New makes the clients. Nothing is dialed before the first call. Calls have no
// deadline but their context's. The caller calls Close at the end.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the URL %q: expected http://host:port or https://host:port", o.URL)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence},
	}
	if u.Scheme == "https" {
		transport.Protocols.SetHTTP2(true)
		if transport.TLSClientConfig, err = trust(o); err != nil {
			return nil, err
		}
	} else {
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	h, base := &http.Client{
		Transport: transport,
		// The secret is for the configured address alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, strings.TrimSuffix(o.URL, "/")
	with := append([]connect.ClientOption{connect.WithInterceptors(bearer{o.Secret}), connect.WithReadMaxBytes(maxMessage)}, o.Connect...)
	return &Client{
		Inference: inferencev1connect.NewInferenceServiceClient(h, base, with...),
		Control:   controlv1connect.NewControlServiceClient(h, base, with...),
		Admin:     adminv1connect.NewAdminServiceClient(h, base, with...),
		Fleet:     fleetv1connect.NewFleetServiceClient(h, base, with...),
		transport: transport,
	}, nil
}

// Close ends idle connections. Calls that run go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

func trust(o Options) (*tls.Config, error) {
	config := &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12}
	if o.Pin == "" {
		return config, nil
	}
	pin, err := hex.DecodeString(o.Pin)
	if err != nil || len(pin) != sha256.Size {
		return nil, errors.New("the pin of the server's certificate: expected the 64 hexadecimal digits of a SHA-256")
	}
	// The pin takes the place of the chain, the name and the dates. VerifyConnection
	// runs for resumed connections too.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 || sha256.Sum256(state.PeerCertificates[0].Raw) != [sha256.Size]byte(pin) {
			return errors.New("the server's certificate is not the pinned one")
		}
		return nil
	}
	return config, nil
}
