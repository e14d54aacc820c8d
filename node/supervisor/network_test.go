package supervisor_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/node/session"
	"github.com/iop-dev/iop/node/supervisor"
)

// outage is one way in which an Edge cannot be registered with. It returns the
// URL that leads there.
type outage func(t *testing.T) (url string)

// listener serves each connection on its own, and ends with the test.
func listener(serve func(net.Conn)) outage {
	return func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					defer c.Close()
					stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
					defer stop()
					serve(c)
				})
			}
		})
		t.Cleanup(func() {
			_ = l.Close()
			all.Wait()
		})
		return "http://" + l.Addr().String()
	}
}

// reset ends a connection as a crashed machine's kernel does.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// server is an HTTP server: one that speaks HTTP/2 without TLS, or over TLS.
func server(useTLS bool, h http.Handler) outage {
	return func(t *testing.T) string {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		if useTLS {
			s.EnableHTTP2 = true
			s.StartTLS()
		} else {
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
		}
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		return s.URL
	}
}

func status(code int, header ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>"+strconv.Itoa(code)+"</html>")
	})
}

// answers is an Edge that answers every registration with one message.
type answers struct {
	runtimev1connect.UnimplementedNodeLinkServiceHandler
	first *runtimev1.SessionResponse // nil = it ends the stream without an answer
}

func (a answers) Session(_ context.Context, s *connect.BidiStream[runtimev1.SessionRequest, runtimev1.SessionResponse]) error {
	if _, err := s.Receive(); err != nil || a.first == nil {
		return err
	}
	return s.Send(a.first)
}

func edge(first *runtimev1.SessionResponse) outage {
	_, h := runtimev1connect.NewNodeLinkServiceHandler(answers{first: first})
	return server(false, h)
}

func rejecting(reason runtimev1.RejectReason) outage {
	return edge(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Rejected{
		Rejected: &runtimev1.Rejected{Reason: reason, Message: "the reason"},
	}})
}

func fixed(url string) outage { return func(*testing.T) string { return url } }

// S16, S17: what waiting may heal is retried, and only bad local configuration
// and a refused credential end the node. The errors are those of real sockets.
func TestS16_S17_WhatIsRetriedAndWhatIsFinal(t *testing.T) {
	closed := func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return "http://" + l.Addr().String()
	}
	https := func(o outage) outage {
		return func(t *testing.T) string { return strings.Replace(o(t), "http://", "https://", 1) }
	}
	garbage := listener(func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n"+strings.Repeat("garbage ", 1000))
		_, _ = io.Copy(io.Discard, c) // Closing over unread bytes would be a reset.
	})
	resetting := listener(func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 3)) // of the preface, or of the ClientHello
		reset(c)
	})
	for name, c := range map[string]struct {
		outage outage
		final  bool
		waits  bool   // nothing comes: the attempt ends at its own limit
		say    string // in the error
	}{
		"connection refused":              {outage: closed, say: "refused"},
		"address not reachable":           {outage: fixed("http://255.255.255.255:1"), say: "255.255.255.255"},
		"name not found":                  {outage: fixed("http://no..such.host:8485"), say: "no such host"},
		"accepted and closed":             {outage: listener(func(net.Conn) {}), say: "did not answer in HTTP/2"},
		"reset during the HTTP handshake": {outage: resetting},
		"reset during the TLS handshake":  {outage: https(resetting)},
		"closed during the TLS handshake": {outage: https(listener(func(net.Conn) {}))},
		"garbage":                         {outage: garbage, say: "did not answer in HTTP/2"},
		"garbage instead of TLS":          {outage: https(garbage), say: "did not answer in HTTP/2"},
		"no answer at all":                {outage: silent, waits: true, say: "did not answer the registration"},
		"no answer to the TLS handshake":  {outage: https(silent), waits: true, say: "did not answer the registration"},
		"certificate of somebody else":    {outage: server(true, status(200)), say: "certificate"},
		"HTTP/1.1 only":                   {outage: func(t *testing.T) string { return closeAfter(t, httptest.NewServer(status(200))) }, say: "did not answer in HTTP/2"},
		"500":                             {outage: server(false, status(500)), say: "500"},
		"502 of a proxy":                  {outage: server(false, status(502)), say: "502"},
		"503 of a proxy":                  {outage: server(false, status(503, "Retry-After", "1")), say: "503"},
		"504 of a proxy":                  {outage: server(false, status(504)), say: "504"},
		"404: no Edge behind the proxy":   {outage: server(false, status(404)), say: "404"},
		"401 of a proxy":                  {outage: server(false, status(401))},
		"429 of a proxy":                  {outage: server(false, status(429)), say: "429"},
		"redirect":                        {outage: server(false, status(308, "Location", "http://127.0.0.1:1/")), say: "308"},
		"200 of something else":           {outage: server(false, status(200, "Content-Type", "text/html")), say: "text/html"},
		"an Edge without this service":    {outage: server(false, http.NotFoundHandler()), say: "404"},
		"the stream ends unanswered":      {outage: edge(nil)},
		"an answer of a later version":    {outage: edge(&runtimev1.SessionResponse{}), say: "neither accepted nor rejected"},
		"accepted, but unusable":          {outage: edge(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Accepted{Accepted: &runtimev1.Accepted{}}})},
		"rejected: unknown node":          {outage: rejecting(runtimev1.RejectReason_REJECT_REASON_UNKNOWN_NODE), say: "unknown node"},
		"rejected: duplicate owner":       {outage: rejecting(runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER), say: "duplicate owner"},
		"rejected: version skew":          {outage: rejecting(runtimev1.RejectReason_REJECT_REASON_VERSION_SKEW), say: "version skew"},
		"rejected: draining":              {outage: rejecting(runtimev1.RejectReason_REJECT_REASON_DRAINING), say: "draining"},
		"rejected: a later reason":        {outage: rejecting(99)},
		"rejected: bad credential":        {outage: rejecting(runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL), final: true, say: "bad credential"},
		"local configuration: no scheme":  {outage: fixed("edge.local:8485"), final: true, say: "edge_url"},
		"local configuration: no host":    {outage: fixed("https://"), final: true, say: "edge_url"},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			clock := clockwork.NewFakeClock()
			sup := dialing(t, clock, c.outage(t), func() { attempts++ })
			done := make(chan error, 1)
			go func() { done <- sup.Run(t.Context()) }()

			// Time passes only while the node waits for it: for its own limit on an
			// attempt without an answer, and then for the cadence.
			var end error
			tooLong := time.After(patience)
			for over := false; !over; {
				select {
				case end = <-done:
					over = true
				case <-tooLong:
					t.Fatalf("the attempts do not end: %+v", sup.Status())
				case <-time.After(time.Millisecond):
					if c.waits {
						clock.Advance(interval)
					} else if left := sup.Status().NextAttempt.Sub(clock.Now()); left > 0 {
						// Once a wait: more could end the attempt that follows it.
						require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
						clock.Advance(left)
					}
				}
			}
			require.Equal(t, c.final, supervisor.IsFinal(end), "%v", end)
			require.ErrorContains(t, end, c.say)
			require.NotContains(t, end.Error(), "html>", "a page is no message")
			if c.final {
				require.Equal(t, 1, attempts)
				return
			}
			require.ErrorIs(t, end, supervisor.ErrExhausted)
			require.Equal(t, 2, attempts)
		})
	}
}

// S17: a shutdown ends a dial and a registration that hang, and waits for nothing:
// the clock does not move.
func TestS17_ShutdownEndsADialThatHangs(t *testing.T) {
	for name, scheme := range map[string]string{"no answer to the registration": "http", "no answer to the TLS handshake": "https"} {
		t.Run(name, func(t *testing.T) {
			hangs := make(chan struct{}, 1)
			url := listener(func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, 3))
				hangs <- struct{}{}
				_, _ = io.Copy(io.Discard, c)
			})(t)
			sup := dialing(t, clockwork.NewFakeClock(), strings.Replace(url, "http", scheme, 1), func() {})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- sup.Run(ctx) }()
			<-hangs
			stop()
			require.NoError(t, <-done)
		})
	}
}

// dialing is a supervisor whose attempts are real sessions; each calls attempt.
func dialing(t *testing.T, clock clockwork.Clock, url string, attempt func()) *supervisor.Supervisor {
	quiet := slog.New(slog.DiscardHandler)
	providers := provider.NewSet(provider.Config{Clock: clock, Log: quiet})
	t.Cleanup(func() { providers.Close(context.Background()) })
	sup, err := supervisor.New(supervisor.Config{
		Policy: supervisor.Policy{Interval: interval, MaxAttempts: 2},
		Clock:  clock,
		Random: func() float64 { return 0.5 }, // Factor 1.
		Attempt: func(ctx context.Context, ready func()) error {
			attempt()
			return session.Run(ctx, session.Config{
				EdgeURL: url, NodeID: "n", InstanceID: "instance-of-n", Token: "t", SoftwareVersion: "test",
				Providers: providers, Clock: clock, Logger: quiet, OnReady: ready,
			})
		},
	})
	require.NoError(t, err)
	return sup
}

// silent takes what comes and never answers.
var silent = listener(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })

func closeAfter(t *testing.T, s *httptest.Server) string {
	t.Cleanup(s.Close)
	return s.URL
}
