//go:build !windows

package up

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	nodeToken = "node-secret-4f1c"
	apiKey    = "client-secret-9b7e"
)

// pair is the files of an Edge and a Node over TLS, as the README makes them.
type pair struct {
	t       *testing.T
	dir     string
	address string
	client  *http.Client
}

func newPair(t *testing.T) *pair {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := &pair{t: t, dir: t.TempDir(), address: l.Addr().String()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "edge.local"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	p.write("edge.crt", string(crt))
	p.write("edge.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
	p.write("node.token", nodeToken+"\n")
	p.write("edge.yaml", p.edge("m"))

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(crt))
	p.client = &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(p.client.CloseIdleConnections)
	return p
}

func (p *pair) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pair) write(name, text string) string {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(p.path(name), []byte(text), 0o600))
	return p.path(name)
}

// edge is an edge.yaml which serves the simulator of one node under some names.
func (p *pair) edge(models ...string) string {
	hash := func(secret string) string {
		sum := sha256.Sum256([]byte(secret))
		return hex.EncodeToString(sum[:])
	}
	text := fmt.Sprintf(`edge:
  listen: %s
  tls: {cert_file: %s, key_file: %s}
openai:
  api_keys: [{name: laptop, sha256: %s}]
nodes:
  - id: desk
    token_sha256: %s
    providers: [{id: sim, type: simulator}]
models:
`, p.address, p.path("edge.crt"), p.path("edge.key"), hash(apiKey), hash(nodeToken))
	for _, m := range models {
		text += fmt.Sprintf("  - {id: %s, providers: [{node: desk, provider: sim, target: simulator}]}\n", m)
	}
	return text
}

// node is a node.yaml with a token file and a limit of attempts.
func (p *pair) node(tokenFile string, attempts int) string {
	return p.write("node.yaml", fmt.Sprintf(`node: {id: desk, edge_url: "https://%s", ca_file: %q, token_file: %q}
reconnect: {interval_sec: 0.1, max_attempts: %d}
`, p.address, p.path("edge.crt"), tokenFile, attempts))
}

// call asks the Edge for something and returns status and body.
func (p *pair) call(method, path, key, body string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequest(method, "https://"+p.address+path, strings.NewReader(body))
	require.NoError(p.t, err)
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := p.client.Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(answer)
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

func TestS16_ANodeThatStartsBeforeItsEdgeRegistersOnceAndServes(t *testing.T) {
	p := newPair(t)
	node := launch(t, "node", "-c", p.node(p.path("node.token"), 0))
	// Longer than the old bound of ten attempts.
	node.logs("will retry", 11)
	edge := launch(t, "edge", "-c", p.path("edge.yaml"))
	node.logs("connected to the edge", 1)

	status, body := p.call("POST", "/v1/chat/completions", apiKey, hello)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"model":"m"`)
	status, body = p.call("POST", "/v1/chat/completions", "wrong", hello)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, body, "invalid_api_key")

	require.Zero(t, node.stop(term), node.errors())
	require.Equal(t, 1, strings.Count(node.errors(), "connected to the edge"), "registered once")
	status, body = p.call("POST", "/v1/chat/completions", apiKey, hello)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "provider_unavailable")
	require.Zero(t, edge.stop(ctrlC), edge.errors())
	for _, log := range []string{node.errors(), edge.errors()} {
		require.NotContains(t, log, nodeToken)
		require.NotContains(t, log, apiKey)
	}
}

func TestS17_ARefusedTokenIsExitCode4(t *testing.T) {
	p := newPair(t)
	edge := launch(t, "edge", "-c", p.path("edge.yaml"))
	edge.logs("listening", 1)
	node := launch(t, "node", "-c", p.node(p.write("wrong.token", "not-the-token"), 0))
	require.Equal(t, 4, node.exit(), node.errors())
	require.Contains(t, node.errors(), "bad credential")
	require.NotContains(t, node.errors()+edge.errors(), "not-the-token")
	require.Zero(t, edge.stop(term), edge.errors())
}

func TestS17_ExhaustedAttemptsAreExitCode3(t *testing.T) {
	p := newPair(t)
	node := launch(t, "node", "-c", p.node(p.path("node.token"), 2))
	require.Equal(t, 3, node.exit(), node.errors())
	require.Equal(t, 1, strings.Count(node.errors(), "will retry"))
}

func TestU19_HangupReloadsAGoodFileAndRefusesABadOne(t *testing.T) {
	p := newPair(t)
	edge := launch(t, "edge", "-c", p.path("edge.yaml"))
	node := launch(t, "node", "-c", p.node(p.path("node.token"), 0))
	node.logs("connected to the edge", 1)

	p.write("edge.yaml", p.edge("m", "second"))
	require.NoError(t, edge.cmd.Process.Signal(syscall.SIGHUP))
	edge.logs("configuration reloaded", 1)
	require.Contains(t, edge.errors(), "models[second]", "the log says what changed")
	_, body := p.call("GET", "/v1/models", apiKey, "")
	require.Contains(t, body, `"second"`)

	p.write("edge.yaml", p.edge("m")+"bogus: 1\n")
	require.NoError(t, edge.cmd.Process.Signal(syscall.SIGHUP))
	edge.logs("configuration not reloaded", 1)
	require.Contains(t, edge.errors(), "bogus")
	_, body = p.call("GET", "/v1/models", apiKey, "")
	require.Contains(t, body, `"second"`, "the former configuration stays in force")
	status, body := p.call("POST", "/v1/chat/completions", apiKey, hello)
	require.Equal(t, http.StatusOK, status, body)

	require.Zero(t, node.stop(term), node.errors())
	require.Zero(t, edge.stop(term), edge.errors())
}
