package clients

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/cmd/noded"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	nodeconfig "github.com/iop-dev/iop/node/config"
	"github.com/iop-dev/iop/services/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; a passing test never
// waits it out.
const patience = 30 * time.Second

const (
	apiKey     = "clients-api-key"
	readToken  = "clients-read-token"
	adminToken = "clients-admin-token"
	nodeToken  = "clients-node-token"
	otherPage  = "https://page.example"
)

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

const edgeYAML = `
edge:
  id: clients
  listen: "127.0.0.1:0"
  state_dir: %q
  auth: {mode: keys}
  body_limit_bytes: 1048576
  read_tokens: [{name: reader, sha256: %q}]
  admin_tokens: [{name: operator, sha256: %q}]
%s
openai:
  api_keys: [{name: all, sha256: %q}]
  cors: {allowed_origins: [%q]}
nodes:
  - id: n1
    token_sha256: %q
    providers: [{id: sim, type: simulator, capacity: 2}]
  - {id: n2, providers: [{id: sim, type: simulator, capacity: 3}]}
models: [{id: simulator, context_window_tokens: 8192, providers: [{node: n1, provider: sim}, {node: n2, provider: sim}]}]
`

// site is an Edge with one connected node and another that is offline.
type site struct {
	url    string
	host   string // host:port
	caFile string // empty = no TLS
	roots  *x509.CertPool
	pin    string // of the certificate
	file   string // the Edge's configuration
}

// start starts a site, and returns once its node is connected.
func start(t *testing.T, tls bool) *site {
	t.Helper()
	s := &site{file: filepath.Join(t.TempDir(), "edge.yaml")}
	scheme, tlsYAML, nodeYAML := "http", "", ""
	if tls {
		scheme = "https"
		certFile, keyFile := s.certify(t)
		tlsYAML = fmt.Sprintf("  tls: {cert_file: %q, key_file: %q}", certFile, keyFile)
		nodeYAML = fmt.Sprintf(", ca_pin: %q", s.pin)
	}
	text := fmt.Sprintf(edgeYAML, t.TempDir(), hash(readToken), hash(adminToken), tlsYAML, hash(apiKey), otherPage, hash(nodeToken))
	require.NoError(t, os.WriteFile(s.file, []byte(text), 0o600))
	quiet := slog.New(slog.DiscardHandler)
	edge, err := edged.New(edged.Options{ConfigPath: s.file, Logger: quiet, Version: "test"})
	require.NoError(t, err)
	s.host = edge.Addr()
	s.url = scheme + "://" + s.host

	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(nodeToken+"\n"), 0o600))
	nodeCfg, err := nodeconfig.Parse("node.yaml", fmt.Appendf(nil,
		"node: {id: n1, edge_url: %q, token_file: %q%s}\nreconnect: {interval_sec: 0.1, max_attempts: 0}\n", s.url, tokenFile, nodeYAML))
	require.NoError(t, err)
	ready := make(chan struct{}, 1)
	node, err := noded.New(noded.Options{Config: nodeCfg, Logger: quiet, Ready: func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = edge.Run(ctx) })
	running.Go(func() { _ = node.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	select {
	case <-ready:
	case <-time.After(patience):
		require.Fail(t, "the node does not connect")
	}
	return s
}

// certify makes a certificate for loopback that vouches for itself.
func (s *site) certify(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "edge.crt"), filepath.Join(dir, "edge.key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	leaf, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	s.roots = x509.NewCertPool()
	s.roots.AddCert(leaf)
	s.caFile, s.pin = certFile, hash(string(raw))
	return certFile, keyFile
}

// client is the Go client, with a credential.
func (s *site) client(t *testing.T, secret string, o ...connect.ClientOption) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: s.url, Secret: secret, RootCAs: s.roots, Connect: o})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// http1 is a client that speaks HTTP/1.1 alone.
func http1(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask is a run with one message.
func ask(model, text string) *inferencev1.RunRequest {
	words := uint32(6)
	return &inferencev1.RunRequest{
		Model:    model,
		Sampling: &inferencev1.Sampling{MaxOutputTokens: &words},
		Messages: []*inferencev1.Message{{
			Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: text}}},
		}},
	}
}

// within is a context for one step of a test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
