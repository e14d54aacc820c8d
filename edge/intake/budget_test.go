package intake_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/intake"
)

const kib = 1 << 10

func TestABudgetIsSharedAndComesBack(t *testing.T) {
	var b intake.Budget
	b.Limit(300 * kib)
	one, two := b.Share(), b.Share()
	require.True(t, one.Grow(100*kib))
	require.True(t, one.Grow(200*kib))
	require.False(t, two.Grow(101*kib), "together they would hold more")
	require.EqualValues(t, 200*kib, b.Held(), "a refusal holds nothing")
	require.True(t, two.Grow(intake.Small), "a small body always fits")
	require.True(t, two.Grow(100*kib))
	require.True(t, one.Grow(150*kib), "it has that already")
	require.False(t, one.Grow(201*kib))
	b.Limit(100 * kib)
	require.EqualValues(t, 300*kib, b.Held(), "a smaller limit takes nothing away")
	one.Release()
	one.Release()
	two.Release()
	require.Zero(t, b.Held())
}

func TestNoBudgetNoLimit(t *testing.T) {
	var none *intake.Budget
	s := none.Share()
	require.True(t, s.Grow(1<<40))
	s.Release()
	var zero intake.Budget
	s = zero.Share()
	require.True(t, s.Grow(1<<40))
	require.EqualValues(t, int64(1)<<40, zero.Held())
}

func TestABudgetHoldsUnderLoad(t *testing.T) {
	var b intake.Budget
	b.Limit(1000 * kib)
	var all sync.WaitGroup
	var inside, peak atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 2000 {
				s := b.Share()
				if s.Grow(400 * kib) {
					now := inside.Add(1)
					for most := peak.Load(); now > most && !peak.CompareAndSwap(most, now); most = peak.Load() {
					}
					inside.Add(-1)
				}
				s.Release()
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, peak.Load(), int64(2))
	require.Zero(t, b.Held())
}
