package gate

import (
	"context"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// strangers hold slots that the sender of mine's claims does not count.
var strangers = map[string]Owner{
	"of a former account": {Account: 1, Name: "p"},
	"of another name":     {Account: 2, Name: "q"},
}

// hold takes a slot for o, which must be free.
func hold(t *testing.T, g *Gate, o Owner) *Slot {
	t.Helper()
	slot, err := g.Acquire(t.Context(), Claim{Owner: o})
	require.NoError(t, err)
	return slot
}

func undecided(t *testing.T, done <-chan outcome) {
	t.Helper()
	select {
	case o := <-done:
		t.Fatalf("the wait has ended: %v", o.err)
	default:
	}
}

func TestPatienceBeginsWhenTheForeignExecutionHasEnded(t *testing.T) {
	for name, stranger := range strangers {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			g := New(1, clock)
			orphan := hold(t, g, stranger)
			first := acquire(t, g, t.Context(), mine(2*time.Second))
			second := acquire(t, g, t.Context(), mine(2*time.Second))
			clock.Advance(time.Hour)
			undecided(t, first)
			undecided(t, second)

			orphan.Release()
			running := <-first
			require.NoError(t, running.err)
			clock.Advance(2*time.Second - 1)
			undecided(t, second)
			clock.Advance(1)
			require.ErrorIs(t, (<-second).err, ErrBusy, "the gate is full of its own (S05)")
			running.slot.Release()
			assert.Zero(t, g.InUse())
		})
	}
}

func TestPatienceIsSuspendedWhileAForeignClaimRuns(t *testing.T) {
	clock := clockwork.NewFakeClock()
	g := New(1, clock)
	own := hold(t, g, mine(0).Owner)
	residue := acquire(t, g, t.Context(), Claim{Owner: Owner{Account: 2, Name: "q"}, Patience: time.Second})
	waiting := acquire(t, g, t.Context(), mine(2*time.Second))
	clock.Advance(2*time.Second - 1)
	undecided(t, residue) // for it, the holder is foreign
	own.Release()
	stranger := <-residue
	require.NoError(t, stranger.err)
	clock.Advance(time.Hour)
	undecided(t, waiting)
	stranger.slot.Release()
	o := <-waiting
	require.NoError(t, o.err)
	o.slot.Release()
	assert.Zero(t, g.InUse())
}

func TestOneForeignSlotAmongOwnOnesSuspendsThePatience(t *testing.T) {
	clock := clockwork.NewFakeClock()
	g := New(2, clock)
	own := hold(t, g, mine(0).Owner)
	orphan := hold(t, g, Owner{Account: 1, Name: "p"})
	waiting := acquire(t, g, t.Context(), mine(2*time.Second))
	clock.Advance(time.Hour)
	undecided(t, waiting)
	g.Resize(1)
	orphan.Release()
	clock.Advance(2 * time.Second)
	require.ErrorIs(t, (<-waiting).err, ErrBusy)
	own.Release()
}

// Without any patience a claim is refused at once by what its own owner holds,
// and waits for what a stranger holds all the same: a queue must not burn on an
// orphan that its sender cannot know of.
func TestNoPatienceStillWaitsForAForeignExecution(t *testing.T) {
	clock := clockwork.NewFakeClock()
	g := New(1, clock)
	orphan := hold(t, g, Owner{Account: 1, Name: "p"})
	first, second := acquire(t, g, t.Context(), mine(0)), acquire(t, g, t.Context(), mine(0))
	clock.Advance(time.Hour)
	undecided(t, first)
	orphan.Release()
	o := <-first
	require.NoError(t, o.err)
	require.ErrorIs(t, (<-second).err, ErrBusy)
	o.slot.Release()
}

func TestWaitForAForeignExecutionEnds(t *testing.T) {
	stranger := Owner{Account: 1, Name: "p"}
	t.Run("at its limit", func(t *testing.T) {
		clock := clockwork.NewFakeClock()
		g := New(1, clock)
		orphan := hold(t, g, stranger)
		claim := mine(2 * time.Second)
		claim.Limit = time.Minute
		waiting := acquire(t, g, t.Context(), claim)
		clock.Advance(time.Minute - 1)
		undecided(t, waiting)
		clock.Advance(1)
		require.ErrorIs(t, (<-waiting).err, ErrBusy)
		assert.Zero(t, g.Waiting())
		orphan.Release()
		assert.Zero(t, g.InUse())
	})
	t.Run("with its context", func(t *testing.T) {
		g := New(1, clockwork.NewFakeClock())
		orphan := hold(t, g, stranger)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := acquire(t, g, ctx, mine(2*time.Second))
		cancel()
		require.ErrorIs(t, (<-waiting).err, context.Canceled)
		assert.Zero(t, g.Waiting())
		orphan.Release()
		assert.Zero(t, g.InUse())
	})
	t.Run("with growth", func(t *testing.T) {
		g := New(1, clockwork.NewFakeClock())
		orphan := hold(t, g, stranger)
		waiting := acquire(t, g, t.Context(), mine(2*time.Second))
		g.Resize(2)
		o := <-waiting
		require.NoError(t, o.err)
		o.slot.Release()
		orphan.Release()
	})
}

func TestALimitShorterThanThePatienceCounts(t *testing.T) {
	clock := clockwork.NewFakeClock()
	g := New(1, clock)
	own := hold(t, g, mine(0).Owner)
	claim := mine(2 * time.Second)
	claim.Limit = time.Second
	waiting := acquire(t, g, t.Context(), claim)
	clock.Advance(time.Second)
	require.ErrorIs(t, (<-waiting).err, ErrBusy)
	own.Release()
}
