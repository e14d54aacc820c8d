package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mine is a claim of the owner that most tests are about.
func mine(patience time.Duration) Claim {
	return Claim{Owner: Owner{Account: 2, Name: "p"}, Patience: patience}
}

// outcome is what one Acquire in the background came to.
type outcome struct {
	slot *Slot
	err  error
}

// acquire calls Acquire in the background and returns once it waits.
func acquire(t *testing.T, g *Gate, ctx context.Context, c Claim) <-chan outcome {
	t.Helper()
	before := g.Waiting()
	done := make(chan outcome, 1)
	go func() {
		slot, err := g.Acquire(ctx, c)
		done <- outcome{slot, err}
	}()
	for g.Waiting() == before {
		select {
		case o := <-done:
			t.Fatalf("acquire did not wait: %v", o.err)
		default:
		}
	}
	return done
}

func TestS05_SecondExecutionIsRefusedWhileTheGateIsFull(t *testing.T) {
	clock := clockwork.NewFakeClock()
	g := New(1, clock)
	slot, err := g.Acquire(t.Context(), mine(0))
	require.NoError(t, err)

	_, err = g.Acquire(t.Context(), mine(0))
	require.ErrorIs(t, err, ErrBusy, "a wait of 0 refuses at once")

	second := acquire(t, g, t.Context(), mine(2*time.Second))
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(2 * time.Second)
	require.ErrorIs(t, (<-second).err, ErrBusy)
	assert.Equal(t, 1, g.InUse())
	assert.Zero(t, g.Waiting())

	slot.Release()
	slot.Release()
	assert.Zero(t, g.InUse(), "a second release of one slot must not give a second place")
	third, err := g.Acquire(t.Context(), mine(0))
	require.NoError(t, err)
	third.Release()
}

func TestWaitersAreServedInOrderOfArrival(t *testing.T) {
	g := New(1, clockwork.NewFakeClock())
	slot, err := g.Acquire(t.Context(), mine(0))
	require.NoError(t, err)
	var queue []<-chan outcome
	for range 5 {
		queue = append(queue, acquire(t, g, t.Context(), mine(time.Minute)))
	}
	for i, waiter := range queue {
		_, err := g.Acquire(t.Context(), mine(0))
		require.ErrorIs(t, err, ErrBusy, "a newcomer overtook those who wait")
		slot.Release()
		o := <-waiter
		require.NoError(t, o.err)
		assert.Equal(t, len(queue)-i-1, g.Waiting())
		slot = o.slot
	}
	slot.Release()
	assert.Zero(t, g.InUse())
}

func TestCancelledWaiterLeavesAtOnceAndHoldsNothing(t *testing.T) {
	g := New(1, clockwork.NewFakeClock())
	slot, err := g.Acquire(t.Context(), mine(0))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	gone := acquire(t, g, ctx, mine(time.Minute))
	next := acquire(t, g, t.Context(), mine(time.Minute))
	cancel()
	require.ErrorIs(t, (<-gone).err, context.Canceled)
	slot.Release()
	o := <-next
	require.NoError(t, o.err)
	o.slot.Release()
	assert.Zero(t, g.InUse())

	_, err = g.Acquire(ctx, mine(time.Minute))
	require.ErrorIs(t, err, context.Canceled, "an ended caller takes no free place")
	assert.Zero(t, g.InUse())
}

func TestS08_ResizeKeepsTheCount(t *testing.T) {
	g := New(2, clockwork.NewFakeClock())
	a, err := g.Acquire(t.Context(), mine(0))
	require.NoError(t, err)
	b, err := g.Acquire(t.Context(), mine(0))
	require.NoError(t, err)
	waiting := acquire(t, g, t.Context(), mine(time.Minute))

	g.Resize(1)
	assert.Equal(t, 2, g.InUse(), "running executions stay")
	a.Release()
	assert.Equal(t, 1, g.Waiting(), "still over or at the new capacity: nobody is let in")
	g.Resize(2)
	o := <-waiting
	require.NoError(t, o.err)
	assert.Equal(t, 2, g.InUse())

	g.Resize(-1)
	assert.Zero(t, g.Capacity())
	b.Release()
	o.slot.Release()
	_, err = g.Acquire(t.Context(), mine(0))
	require.ErrorIs(t, err, ErrBusy, "capacity 0 lets none through")
}

// TestS05_PeakNeverExceedsCapacity lets many goroutines fight for few places
// while waits run out, callers leave and the capacity moves between 1 and 3.
func TestS05_PeakNeverExceedsCapacity(t *testing.T) {
	const most = 3
	g := New(most, clockwork.NewRealClock())
	var running, peak, served atomic.Int64
	var workers sync.WaitGroup
	for w := range 16 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range 300 {
				ctx, cancel := context.WithCancel(context.Background())
				if (w+i)%5 == 0 {
					go cancel()
				}
				slot, err := g.Acquire(ctx, Claim{Owner: Owner{Account: uint64(w % 2)}, Patience: time.Duration(i%4) * 50 * time.Microsecond, Limit: time.Duration(i%3) * 80 * time.Microsecond})
				if err == nil {
					now := running.Add(1)
					for {
						old := peak.Load()
						if now <= old || peak.CompareAndSwap(old, now) {
							break
						}
					}
					served.Add(1)
					running.Add(-1)
					slot.Release()
					if i%2 == 0 {
						slot.Release()
					}
				} else if !errors.Is(err, ErrBusy) && !errors.Is(err, context.Canceled) {
					t.Errorf("unexpected error: %v", err)
				}
				if w == 0 {
					g.Resize(1 + i%most)
				}
				cancel()
			}
		}()
	}
	workers.Wait()
	assert.LessOrEqual(t, peak.Load(), int64(most))
	assert.Positive(t, served.Load())
	assert.Zero(t, g.InUse())
	assert.Zero(t, g.Waiting())
}
