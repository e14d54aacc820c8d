package provider

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/gate"
	"github.com/iop-dev/iop/node/normalize"
	"github.com/iop-dev/iop/node/provider/simulator"
)

const (
	// dialTimeout bounds the search for a server that answers nothing.
	dialTimeout = 10 * time.Second
	// fallbackDelay is the head start of ::1 over 127.0.0.1 behind localhost (H16).
	fallbackDelay = 100 * time.Millisecond
	// idleConnTimeout is less than the keep-alive of common servers (uvicorn,
	// cpp-httplib and Node: 5 s), so that a request seldom meets a connection
	// which the server is just closing: that request could not be sent again.
	idleConnTimeout = 4 * time.Second
	// idleConns is more than any provider has executions.
	idleConns = 4096
	// headLimit bounds the head of an answer, in bytes.
	headLimit = 256 << 10
)

// profile is how a type of server differs from the plain OpenAI-compatible one.
type profile struct {
	// streamEndsConn servers close their socket after a streamed answer while
	// promising keep-alive.
	streamEndsConn bool
	// deafToHalfClose servers notice only a failed write, so a cancel closes
	// both directions and waits for the whole grace.
	deafToHalfClose bool
}

const (
	lemonadeType  = "lemonade"
	ollamaType    = "ollama"
	simulatorType = "simulator"
)

var profiles = map[string]profile{
	"openai":      {},
	"vllm":        {},
	"llamacpp":    {streamEndsConn: true},
	ollamaType:    {},
	lemonadeType:  {},
	"lmstudio":    {},
	"mlx":         {deafToHalfClose: true},
	simulatorType: {},
}

// Types is every provider type a node can run, for its registration.
func Types() []string {
	return []string{"openai", "vllm", "llamacpp", ollamaType, lemonadeType, "lmstudio", "mlx", simulatorType}
}

// settings of a provider that may change while it runs; immutable themselves.
type settings struct {
	drain          bool
	cancelGrace    time.Duration
	gateWait       time.Duration
	requestTimeout time.Duration
}

func settingsOf(p *runtimev1.Provider) *settings {
	return &settings{
		drain:          p.GetCancel() == "drain",
		cancelGrace:    milliseconds(p.GetCancelGraceMs()),
		gateWait:       milliseconds(p.GetGateWaitMs()),
		requestTimeout: milliseconds(p.GetRequestTimeoutMs()),
	}
}

func milliseconds(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

// instance is one provider: a server and the way to it. What the first block
// holds is immutable; the rest belongs to Set.mu.
type instance struct {
	id, kind, baseURL string
	simulator         *runtimev1.Simulator
	profile           profile
	// unusable says why no request may be sent, in words for an operator; "" if
	// there is no reason.
	unusable string
	// server names the physical server, for the gate.
	server    string
	endpoints map[string]*url.URL
	// form and run are how and where it is asked for a normalized run.
	form      *normalize.Form
	run       *url.URL
	transport *http.Transport
	// stopServer ends a simulator.
	stopServer func()

	settings *settings
	gate     *gate.Gate
	running  int
	retired  bool
}

// is tells whether p describes this instance, its live settings apart.
func (p *instance) is(other *runtimev1.Provider) bool {
	return p.kind == other.GetType() && p.baseURL == other.GetBaseUrl() && p.unusable == "" &&
		proto.Equal(p.simulator, other.GetSimulator())
}

// unusable is the instance of a provider that no request may be sent to.
func unusable(described *runtimev1.Provider, why string) *instance {
	return &instance{id: described.GetId(), kind: described.GetType(), baseURL: described.GetBaseUrl(), unusable: why}
}

func newInstance(config Config, described *runtimev1.Provider) *instance {
	id, kind, baseURL := described.GetId(), described.GetType(), described.GetBaseUrl()
	special, known := profiles[kind]
	if !known {
		return unusable(described, fmt.Sprintf("provider %s: this node's version cannot run providers of type %q", id, kind))
	}
	p := &instance{id: id, kind: kind, baseURL: baseURL, simulator: described.GetSimulator(), profile: special, transport: newTransport()}
	if kind == simulatorType {
		p.serveSimulator(config)
		return p
	}
	root, err := parseBaseURL(baseURL)
	if err != nil {
		return unusable(described, fmt.Sprintf("provider %s: %v", id, err))
	}
	if config.Allow != nil {
		if err := config.Allow(baseURL); err != nil {
			return unusable(described, fmt.Sprintf("provider %s: this node does not allow its endpoint: %v", id, err))
		}
	}
	dial := &net.Dialer{Timeout: dialTimeout, FallbackDelay: fallbackDelay}
	p.server = physical(root)
	p.reach(root)
	p.transport.DialContext = dialer(dial.DialContext)
	return p
}

// serveSimulator starts the provider's own server, reached over connections in
// memory by the same code as any other.
func (p *instance) serveSimulator(config Config) {
	server := simulator.Serve(simulator.New(p.simulator, config.Clock))
	p.server = simulatorType + ":" + p.id
	p.reach(&url.URL{Scheme: "http", Host: "simulator.iop.invalid"})
	p.transport.DialContext = dialer(server.Dial)
	p.stopServer = server.Close
}

// reach makes root the server's root.
func (p *instance) reach(root *url.URL) {
	p.form = normalize.FormOf(p.kind)
	p.endpoints, p.run = endpoints(root, p.kind), below(root, p.form.Path)
}

// newTransport is an HTTP/1.1 transport that does nothing of its own accord: no
// proxy (H15), no compression, no HTTP/2. It never repeats a request either, as
// requests come without GetBody. A client's limits are the exchange's business.
func newTransport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleConnTimeout,
		TLSHandshakeTimeout:    dialTimeout,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: headLimit,
		ReadBufferSize:         readSize,
		WriteBufferSize:        readSize,
	}
}

// close drops the idle connections of an instance that runs nothing any more.
func (p *instance) close() {
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
	if p.stopServer != nil {
		p.stopServer()
	}
}
