package provider

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; it is never waited out
// by a passing test.
const patience = 20 * time.Second

// answer collects the frames of one request and checks their order as it goes.
type answer struct {
	t *testing.T
	// hook, if set, is called with each frame before it is taken.
	hook func(f *Frame) error

	mu      sync.Mutex
	writing atomic.Bool
	frames  int
	head    *runtimev1.ResponseHead
	body    bytes.Buffer
	end     bool
	failure *runtimev1.Failure
}

func (a *answer) Frame(f *Frame) error {
	if !a.writing.CompareAndSwap(false, true) {
		a.t.Error("two frames written at a time")
	}
	defer a.writing.Store(false)
	if a.hook != nil {
		if err := a.hook(f); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.False(a.t, a.end || a.failure != nil, "a frame after the final one")
	if a.frames == 0 {
		assert.True(a.t, f.Head != nil || f.Failure != nil, "the first frame has neither head nor failure")
	} else {
		assert.Nil(a.t, f.Head, "a second head")
	}
	a.frames++
	if f.Head != nil {
		a.head = f.Head
	}
	a.body.Write(f.Body)
	a.end, a.failure = f.End, f.Failure
	return nil
}

func (a *answer) code() runtimev1.FailureCode { return a.failure.GetCode() }

// whole asserts that the answer is complete and returns its body.
func (a *answer) whole() string {
	a.t.Helper()
	require.Nil(a.t, a.failure)
	require.True(a.t, a.end)
	require.NotNil(a.t, a.head)
	return a.body.String()
}

func (a *answer) header(name string) string {
	for _, h := range a.head.GetHeaders() {
		if h.GetName() == name {
			return h.GetValue()
		}
	}
	return ""
}

// newSet returns a set that the test's end closes, with every slot returned.
func newSet(t *testing.T, clock clockwork.Clock, providers ...*runtimev1.Provider) *Set {
	t.Helper()
	s := NewSet(Config{Clock: clock, Log: quiet()})
	s.Apply(list(providers...))
	t.Cleanup(func() { closeSet(t, s) })
	return s
}

func closeSet(t *testing.T, s *Set) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.Close(ctx)
	for _, u := range s.Usage() {
		assert.Zero(t, u.InUse, "slots of provider %s", u.ProviderID)
		assert.Zero(t, u.Waiting)
	}
}

// list is a list of providers without a revision, as an older Edge sends it.
func list(providers ...*runtimev1.Provider) *runtimev1.ProviderSet {
	return &runtimev1.ProviderSet{Providers: providers}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// described is a provider of capacity 1 at url.
func described(kind, url string) *runtimev1.Provider {
	return &runtimev1.Provider{Id: "p", Type: kind, BaseUrl: url, Capacity: 1, Cancel: "forward", CancelGraceMs: 2000, GateWaitMs: 2000}
}

func begin(body string) *runtimev1.RequestBegin {
	return &runtimev1.RequestBegin{ProviderId: "p", Path: "/v1/chat/completions", ContentLength: uint64(len(body)), RequestId: "r"}
}

// ask runs one request to its end.
func ask(t *testing.T, s *Set, body string) *answer {
	t.Helper()
	a := &answer{t: t}
	require.NoError(t, s.Run(t.Context(), begin(body), []byte(body), a))
	return a
}

// start runs one request in the background; done is closed when Run returned.
func start(t *testing.T, ctx context.Context, s *Set, b *runtimev1.RequestBegin, body string) (a *answer, done chan error) {
	t.Helper()
	a = &answer{t: t}
	done = make(chan error, 1)
	go func() { done <- s.Run(ctx, b, []byte(body), a) }()
	return a, done
}

// await receives from ch or fails the test.
func await[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// serve starts an HTTP stub that counts what runs in it.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// tcpStub serves each connection by raw bytes: a server that can misbehave.
func tcpStub(t *testing.T, serveConn func(c *net.TCPConn, r *bufio.Reader)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				serveConn(c.(*net.TCPConn), bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait()
	})
	return "http://" + listener.Addr().String()
}

// readRequest reads one request and its body; false at the end of the connection.
func readRequest(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}
