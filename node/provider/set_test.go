package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// slowStub answers each request with one event when it is told to.
func slowStub(t *testing.T) (url string, asked, finish chan struct{}) {
	t.Helper()
	asked, finish = make(chan struct{}, 16), make(chan struct{}, 16)
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	})
	return stub.URL, asked, finish
}

func waitForWaiting(s *Set, n int) {
	for s.Usage()[0].Waiting != n {
		runtime.Gosched()
	}
}

// awaitRead returns once an exchange waits for its provider's next bytes: from
// there on time that passes is the provider's silence.
func awaitRead(s *Set) {
	for {
		s.mu.Lock()
		for x := range s.running {
			if x.waitingSince.Load() != 0 {
				s.mu.Unlock()
				return
			}
		}
		s.mu.Unlock()
		runtime.Gosched()
	}
}

func TestS05_SecondExecutionWaitsAtTheGateAndIsThenRefused(t *testing.T) {
	clock := clockwork.NewFakeClock()
	url, asked, finish := slowStub(t)
	s := newSet(t, clock, described("vllm", url))
	a, doneA := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, asked, "the first request")

	b, doneB := start(t, t.Context(), s, begin("{}"), "{}")
	waitForWaiting(s, 1)
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(2 * time.Second)
	require.NoError(t, await(t, doneB, "the refusal"))
	assert.Equal(t, busy, b.code())
	assert.Nil(t, b.head)

	finish <- struct{}{}
	require.NoError(t, await(t, doneA, "the first request's end"))
	a.whole()
	assert.Empty(t, asked, "a second upstream request was opened")
}

func TestCase_B09_SlotIsHeldToTheEndOfTheStream(t *testing.T) {
	url, asked, finish := slowStub(t)
	s := newSet(t, clockwork.NewFakeClock(), described("vllm", url))
	frames := make(chan struct{}, 4)
	a := &answer{t: t, hook: func(*Frame) error { frames <- struct{}{}; return nil }}
	doneA := make(chan error, 1)
	go func() { doneA <- s.Run(t.Context(), begin("{}"), []byte("{}"), a) }()
	await(t, asked, "the first request")
	await(t, frames, "its head and first event")
	b, doneB := start(t, t.Context(), s, begin("{}"), "{}")
	waitForWaiting(s, 1)
	assert.Empty(t, asked)
	finish <- struct{}{}
	await(t, doneA, "the first request's end")
	await(t, asked, "the second request, after it")
	finish <- struct{}{}
	await(t, doneB, "the second request's end")
	b.whole()
}

func TestLimitsOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		opening string
		begin   func(*runtimev1.RequestBegin, *runtimev1.Provider)
		limit   time.Duration
	}{
		"A21 no head": {"", func(_ *runtimev1.RequestBegin, p *runtimev1.Provider) { p.RequestTimeoutMs = 360_000 }, 6 * time.Minute},
		"silence":     {eventHead + oneEvent, func(b *runtimev1.RequestBegin, _ *runtimev1.Provider) { b.IdleTimeoutMs = 60_000 }, time.Minute},
		"total":       {eventHead + oneEvent, func(b *runtimev1.RequestBegin, _ *runtimev1.Provider) { b.TotalTimeoutMs = 60_000 }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			stub := newStuckServer(t, c.opening)
			p, b := described("vllm", stub.url), begin("{}")
			c.begin(b, p)
			s := newSet(t, clock, p)
			frames := make(chan struct{}, 4)
			a := &answer{t: t, hook: func(*Frame) error { frames <- struct{}{}; return nil }}
			done := make(chan error, 1)
			go func() { done <- s.Run(t.Context(), b, []byte("{}"), a) }()
			await(t, stub.asked, "the request")
			if c.opening != "" {
				await(t, frames, "the first event")
				awaitRead(s)
			}
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(c.limit - time.Millisecond)
			assert.Equal(t, 1, s.Usage()[0].InUse)
			assert.Empty(t, stub.gone)
			clock.Advance(time.Millisecond)
			await(t, stub.gone, "the half-close")
			close(stub.finish)
			require.NoError(t, await(t, done, "the end"))
			assert.Equal(t, timeout, a.code())
			assert.Equal(t, c.opening != "", a.head != nil)
			assert.Zero(t, s.Usage()[0].InUse)
		})
	}
}

// TestSlowReaderIsNoSilence keeps a frame for longer than the idle limit.
func TestSlowReaderIsNoSilence(t *testing.T) {
	clock := clockwork.NewFakeClock()
	url, asked, finish := slowStub(t)
	s := newSet(t, clock, described("vllm", url))
	b := begin("{}")
	b.IdleTimeoutMs = 1000
	stuck, free := make(chan struct{}), make(chan struct{})
	a := &answer{t: t, hook: func(f *Frame) error {
		if f.Head != nil {
			close(stuck)
			<-free
		}
		return nil
	}}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), b, []byte("{}"), a) }()
	await(t, asked, "the request")
	await(t, stuck, "the reader to be slow")
	for range 5 {
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
		clock.Advance(900 * time.Millisecond)
	}
	finish <- struct{}{}
	close(free)
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, "data: x\n\n", a.whole())
}

func TestHeadLimitEndsWithTheHead(t *testing.T) {
	clock := clockwork.NewFakeClock()
	url, asked, finish := slowStub(t)
	p := described("vllm", url)
	p.RequestTimeoutMs = 1000
	s := newSet(t, clock, p)
	frames := make(chan struct{}, 4)
	a := &answer{t: t, hook: func(*Frame) error { frames <- struct{}{}; return nil }}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), begin("{}"), []byte("{}"), a) }()
	await(t, asked, "the request")
	await(t, frames, "the first event")
	clock.Advance(time.Hour)
	finish <- struct{}{}
	require.NoError(t, await(t, done, "the end"))
	a.whole()
}

func TestCase_B12_EachRequestToADeadProviderFailsAtOnceAndItServesAgain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	s := newSet(t, clockwork.NewRealClock(), described("mlx", "http://"+address))
	for range 3 {
		a := ask(t, s, "{}")
		assert.Equal(t, unreachable, a.code())
		assert.Contains(t, a.failure.GetMessage(), "connection refused")
		assert.Zero(t, s.Usage()[0].InUse)
	}
	listener, err = net.Listen("tcp", address)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "back") })}
	served := make(chan struct{})
	go func() { _ = server.Serve(listener); close(served) }()
	assert.Equal(t, "back", ask(t, s, "{}").whole())
	require.NoError(t, server.Close())
	await(t, served, "the server's end")
}

func TestFailedHandshakeOpensNoRequest(t *testing.T) {
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("a request was opened") })
	s := newSet(t, clockwork.NewRealClock(), described("openai", strings.Replace(plain.URL, "http:", "https:", 1)))
	a := ask(t, s, "{}")
	assert.Equal(t, unreachable, a.code())
	assert.Contains(t, a.failure.GetMessage(), "does not speak TLS")
}

func TestCase_E22_EverySpellingOfTheBaseURLWorks(t *testing.T) {
	var path atomic.Value
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) { path.Store(r.URL.Path) })
	for suffix, want := range map[string]string{
		"": "/v1/chat/completions", "/": "/v1/chat/completions", "/v1": "/v1/chat/completions", "/v1/": "/v1/chat/completions",
		"//": "/v1/chat/completions", "/api/v1": "/api/v1/chat/completions", "/api": "/api/v1/chat/completions", "/a%20b/v1": "/a b/v1/chat/completions",
	} {
		s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL+suffix))
		ask(t, s, "{}").whole()
		assert.Equal(t, want, path.Load(), "base_url ending in %q", suffix)
	}
}

func TestCase_H15_ProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://127.0.0.1:1")
	p := newInstance(Config{Clock: clockwork.NewRealClock(), Log: quiet()}, described("openai", "http://192.168.7.7:8000"))
	assert.Nil(t, p.transport.Proxy, "net/http never proxies loopback, so a request to a stub could not show this")
}

func TestCase_H16_LocalhostFallsBackToIPv4(t *testing.T) {
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	url := strings.Replace(stub.URL, "127.0.0.1", "localhost", 1)
	s := newSet(t, clockwork.NewRealClock(), described("ollama", url))
	assert.Equal(t, strings.TrimPrefix(url, "http://"), ask(t, s, "{}").whole())
}

func TestRequestsThatAreRefusedBeforeTheGate(t *testing.T) {
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("a request was opened") })
	s := NewSet(Config{Clock: clockwork.NewRealClock(), Log: quiet(), Allow: func(url string) error {
		if strings.Contains(url, "192.0.2.1") {
			return errors.New("not in allow_endpoints")
		}
		return nil
	}})
	defer closeSet(t, s)
	other := func(id, kind, url string) *runtimev1.Provider {
		p := described(kind, url)
		p.Id = id
		return p
	}
	s.Apply(list(
		described("openai", stub.URL), other("far", "openai", "http://192.0.2.1:80"), other("odd", "telepathy", stub.URL),
		other("twin", "vllm", strings.Replace(stub.URL, "127.0.0.1", "localhost", 1)+"/v1"),
		other("ftp", "openai", "ftp://x"), other("user", "openai", "http://u:secret@x"), other("query", "openai", "http://x?a=b"), other("none", "openai", ""),
	))
	for id, message := range map[string]string{
		"far": "not in allow_endpoints", "odd": "telepathy", "twin": "provider p", "missing": "no provider", "ftp": "http://",
		"user": "credentials", "query": "query", "none": "http://",
	} {
		b := begin("{}")
		b.ProviderId = id
		a := &answer{t: t}
		require.NoError(t, s.Run(impatient(t), b, []byte("{}"), a))
		assert.Equal(t, neverOpened, a.code(), id)
		assert.Contains(t, a.failure.GetMessage(), message, id)
		assert.NotContains(t, a.failure.GetMessage(), "secret")
	}
	for _, path := range []string{"", "/", "/v1/models", "/v1/chat/completions/", "/v1/../admin", "v1/chat/completions", "/api/generate", "http://evil.example/v1/chat/completions", "/v1/chat/completions?x=y"} {
		b := begin("{}")
		b.Path = path
		a := &answer{t: t}
		require.NoError(t, s.Run(t.Context(), b, []byte("{}"), a))
		assert.Equal(t, neverOpened, a.code(), path)
	}
	b := begin("{}")
	b.ContentLength = 3
	a := &answer{t: t}
	require.NoError(t, s.Run(t.Context(), b, []byte("{}"), a))
	assert.Equal(t, neverOpened, a.code(), "a truncated upload must not be sent")
}

// impatient is the context of a request that does not wait for its provider to be
// named.
func impatient(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestCase_G12_RequestOfARemovedProviderFinishesAndStillCounts(t *testing.T) {
	url, asked, finish := slowStub(t)
	s := newSet(t, clockwork.NewFakeClock(), described("vllm", url))
	a, done := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, asked, "the request")

	s.Apply(list())
	refused := &answer{t: t}
	require.NoError(t, s.Run(impatient(t), begin("{}"), []byte("{}"), refused))
	assert.Equal(t, neverOpened, refused.code())

	// It comes back under another id and spelling: the same server, the same gate.
	back := described("openai", strings.Replace(url, "127.0.0.1", "localhost", 1)+"/v1/")
	back.Id, back.GateWaitMs = "q", 0
	s.Apply(list(back))
	assert.Equal(t, []Usage{{ProviderID: "q", InUse: 1, Capacity: 1}}, s.Usage())
	b := begin("{}")
	b.ProviderId = "q"
	second, doneSecond := start(t, t.Context(), s, b, "{}")
	waitForWaiting(s, 1)
	assert.Empty(t, asked, "the orphan was forgotten")

	finish <- struct{}{}
	require.NoError(t, await(t, done, "the end"))
	a.whole()
	await(t, asked, "the second request, after the orphan's end")
	finish <- struct{}{}
	require.NoError(t, await(t, doneSecond, "the end"))
	second.whole()
	finish <- struct{}{}
	third := &answer{t: t}
	require.NoError(t, s.Run(t.Context(), b, []byte("{}"), third))
	third.whole()
	s.Apply(list())
	assert.Empty(t, s.gates, "gates of servers that are gone must not pile up")
}

func TestS08_ApplyResizesTheGateInPlace(t *testing.T) {
	url, asked, finish := slowStub(t)
	p := described("vllm", url)
	s := newSet(t, clockwork.NewFakeClock(), p)
	_, doneA := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, asked, "the first request")
	_, doneB := start(t, t.Context(), s, begin("{}"), "{}")
	waitForWaiting(s, 1)
	p.Capacity = 2
	s.Apply(list(p))
	await(t, asked, "the second request, let in by the growth")
	p.Capacity, p.GateWaitMs = 1, 0
	s.Apply(list(p))
	assert.Equal(t, Usage{ProviderID: "p", InUse: 2, Capacity: 1}, s.Usage()[0])
	assert.Equal(t, busy, ask(t, s, "{}").code())
	finish <- struct{}{}
	finish <- struct{}{}
	await(t, doneA, "an end")
	await(t, doneB, "an end")
}

// countingStub tells each request's connection by number and closes connections
// by its own rules.
func countingStub(t *testing.T, respond func(request int, conn *net.TCPConn) (again bool)) (url string, connections *atomic.Int64) {
	connections = new(atomic.Int64)
	var requests atomic.Int64
	url = tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		connections.Add(1)
		for readRequest(r) && respond(int(requests.Add(1)), conn) {
			continue
		}
	})
	return url, connections
}

func TestConnectionsAreUsedAgainExceptAfterALlamacppStream(t *testing.T) {
	stream := func(_ int, conn *net.TCPConn) bool {
		_, err := io.WriteString(conn, eventHead+oneEvent+"0\r\n\r\n")
		return err == nil
	}
	whole := func(_ int, conn *net.TCPConn) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		return err == nil
	}
	for _, c := range []struct {
		kind    string
		respond func(int, *net.TCPConn) bool
		want    int64
	}{{"vllm", stream, 1}, {"vllm", whole, 1}, {"llamacpp", whole, 1}, {"llamacpp", stream, 5}} {
		url, connections := countingStub(t, c.respond)
		s := newSet(t, clockwork.NewRealClock(), described(c.kind, url))
		for range 5 {
			ask(t, s, "{}").whole()
		}
		assert.Equal(t, c.want, connections.Load(), c.kind)
	}
}

// TestNothingThatWasSentIsSentAgain lets the server hang up on a used connection
// just as the next request arrives.
func TestNothingThatWasSentIsSentAgain(t *testing.T) {
	var arrived atomic.Int64
	url, _ := countingStub(t, func(n int, conn *net.TCPConn) bool {
		arrived.Add(1)
		if n == 2 {
			return false
		}
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		return err == nil
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", url))
	ask(t, s, "{}").whole()
	assert.Equal(t, disconnected, ask(t, s, "{}").code())
	assert.EqualValues(t, 2, arrived.Load())
	ask(t, s, "{}").whole()
}

// TestDeadPooledConnectionIsReplacedBeforeAnythingIsSent breaks the pooled
// connection on this side, where the transport cannot see it until it writes.
func TestDeadPooledConnectionIsReplacedBeforeAnythingIsSent(t *testing.T) {
	url, connections := countingStub(t, func(_ int, conn *net.TCPConn) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		return err == nil
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", url))
	var last *conn
	dial := s.instances["p"].transport.DialContext
	s.instances["p"].transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		last, _ = c.(*conn)
		return c, err
	}
	ask(t, s, "{}").whole()
	last.spent = true // as a half-closed connection that slipped into the pool
	ask(t, s, "{}").whole()
	assert.EqualValues(t, 2, connections.Load())
}

func TestCase_G21_CloseIdleDropsPooledConnections(t *testing.T) {
	url, connections := countingStub(t, func(_ int, conn *net.TCPConn) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		return err == nil
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", url))
	ask(t, s, "{}").whole()
	s.CloseIdle()
	ask(t, s, "{}").whole()
	assert.EqualValues(t, 2, connections.Load())
}

// A connection that carried a request when the machine woke goes on to that
// request's end, and carries no other.
func TestCase_G21_CloseIdleSparesRequestsButNotTheirConnections(t *testing.T) {
	asked, finish := make(chan struct{}, 4), make(chan struct{}, 4)
	url, connections := countingStub(t, func(_ int, conn *net.TCPConn) bool {
		asked <- struct{}{}
		<-finish
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		return err == nil
	})
	p := described("openai", url)
	p.Capacity = 2
	s := newSet(t, clockwork.NewRealClock(), p)
	a, doneA := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, asked, "the first request")
	s.CloseIdle()
	// The transport pools connections again as soon as it was asked for one.
	b, doneB := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, asked, "the second request")
	finish <- struct{}{}
	finish <- struct{}{}
	require.NoError(t, await(t, doneA, "the first request's end"))
	require.NoError(t, await(t, doneB, "the second request's end"))
	a.whole()
	b.whole()
	// Two at once take whatever the pool has.
	_, doneC := start(t, t.Context(), s, begin("{}"), "{}")
	_, doneD := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, asked, "the third request")
	await(t, asked, "the fourth request")
	finish <- struct{}{}
	finish <- struct{}{}
	require.NoError(t, await(t, doneC, "an end"))
	require.NoError(t, await(t, doneD, "an end"))
	assert.EqualValues(t, 3, connections.Load(), "the second request's connection serves on, the first one's does not")
}

func TestCloseCutsWhatDoesNotEnd(t *testing.T) {
	stub := newStuckServer(t, eventHead+oneEvent)
	s := NewSet(Config{Clock: clockwork.NewFakeClock(), Log: quiet()})
	s.Apply(list(described("vllm", stub.url)))
	a, doneA := start(t, t.Context(), s, begin("{}"), "{}")
	await(t, stub.asked, "the request")
	b, doneB := start(t, t.Context(), s, begin("{}"), "{}")
	waitForWaiting(s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(ctx)
	require.NoError(t, await(t, doneA, "the running request's end"))
	require.NoError(t, await(t, doneB, "the waiting request's end"))
	assert.Equal(t, disconnected, a.code())
	assert.Equal(t, neverOpened, b.code())
	assert.Equal(t, neverOpened, ask(t, s, "{}").code())
	s.Close(ctx)
}

// TestConfigurationAndRequestsAtOnce is for the race detector.
func TestConfigurationAndRequestsAtOnce(t *testing.T) {
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{}") })
	s := newSet(t, clockwork.NewRealClock(), described("vllm", stub.URL))
	done := make(chan struct{})
	for range 4 {
		go func() {
			for range 50 {
				a := &answer{t: t}
				_ = s.Run(t.Context(), begin("{}"), []byte("{}"), a)
				if a.failure != nil && a.code() != busy {
					t.Errorf("unexpected failure: %v", a.failure)
				}
			}
			done <- struct{}{}
		}()
	}
	for i := range 200 {
		p := described([]string{"vllm", "openai"}[i%2], stub.URL)
		p.Capacity = uint32(1 + i%3)
		s.Apply(list(p))
		s.CloseIdle()
	}
	for range 4 {
		await(t, done, "the requests")
	}
}
