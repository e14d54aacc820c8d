package supervisor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/node/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRefused = errors.New("connection refused")

// call is one attempt in progress, steered by the test.
type call struct {
	ctx   context.Context
	ready func()
	end   chan error
}

// rig runs a supervisor whose attempts are steered by the test.
type rig struct {
	t     *testing.T
	clock *clockwork.FakeClock
	calls chan *call
	sup   *supervisor.Supervisor
	stop  context.CancelFunc
	done  chan error
	log   *lines

	mu      sync.Mutex
	running int
	peak    int
}

// lines collects log output.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a supervisor whose jitter factor is 1.
func start(t *testing.T, policy supervisor.Policy) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{
		t: t, clock: clockwork.NewFakeClock(), calls: make(chan *call),
		stop: cancel, done: make(chan error, 1), log: &lines{},
	}
	sup, err := supervisor.New(supervisor.Config{
		Attempt: r.attempt,
		Policy:  policy,
		Clock:   r.clock,
		Random:  func() float64 { return 0.5 }, // Factor 1.
		Logger:  slog.New(slog.NewTextHandler(r.log, nil)),
	})
	require.NoError(t, err)
	r.sup = sup
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.done <- sup.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-finished
	})
	return r
}

// attempt hands the call to the test, and ends when the test or ctx says so.
func (r *rig) attempt(ctx context.Context, ready func()) error {
	r.mu.Lock()
	r.running++
	r.peak = max(r.peak, r.running)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running--
		r.mu.Unlock()
	}()
	c := &call{ctx: ctx, ready: ready, end: make(chan error, 1)}
	select {
	case r.calls <- c:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-c.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// patience bounds waits for other goroutines; it never paces a test.
const patience = 20 * time.Second

func (r *rig) next() *call {
	r.t.Helper()
	select {
	case c := <-r.calls:
		return c
	case err := <-r.done:
		r.t.Fatalf("the supervisor stopped: %v", err)
	case <-time.After(patience):
		r.t.Fatal("no attempt")
	}
	return nil
}

// waiting returns once the supervisor waits for its next attempt.
func (r *rig) waiting() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(r.t, r.clock.BlockUntilContext(ctx, 1))
}

func (r *rig) result() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatal("the supervisor does not stop")
	}
	return nil
}
