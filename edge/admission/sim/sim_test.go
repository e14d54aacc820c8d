package sim

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
)

// TestSim_Race is the pass under the race detector.
func TestSim_Race(t *testing.T) {
	r, err := Run(Options{Seed: 3, Steps: 100_000, DropEvents: 0.5})
	require.NoError(t, err)
	t.Log(r)
	require.GreaterOrEqual(t, r.Steps, 100_000)
	require.Positive(t, r.Faults())
}

// TestSim_Plain is the long pass, in a process built without the race detector.
func TestSim_Plain(t *testing.T) {
	if testing.Short() {
		t.Skip("two million steps")
	}
	bin := filepath.Join(t.TempDir(), "admission-sim")
	out, err := exec.Command("go", "build", "-o", bin, "./cmd/admission-sim").CombinedOutput()
	require.NoError(t, err, string(out))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err = exec.CommandContext(ctx, bin, "-seed", "2", "-steps", "2000000").CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	require.Contains(t, string(out), "0 violations")
}

// TestSim_SameSeedSameTrace shows invariants 12 and 18: a seed gives one trace,
// however many events are dropped.
func TestSim_SameSeedSameTrace(t *testing.T) {
	for seed := range uint64(3) {
		require.NoError(t, Prove(Options{Seed: seed + 1, Steps: 5_000}))
	}
}

// TestSim_SeedsDiffer keeps the comparison of traces honest.
func TestSim_SeedsDiffer(t *testing.T) {
	a, err := Run(Options{Seed: 1, Steps: 2_000})
	require.NoError(t, err)
	b, err := Run(Options{Seed: 2, Steps: 2_000})
	require.NoError(t, err)
	require.NotEqual(t, a.Hash, b.Hash)
	require.ErrorContains(t, Compare(a, b, Determinism), "18 determinism")
	require.ErrorContains(t, Compare(a, b, EventsDropped), "12 events dropped")
}

// TestSim_EpisodeAlone shows that one episode can be replayed by itself.
func TestSim_EpisodeAlone(t *testing.T) {
	all, err := Run(Options{Seed: 5, Steps: 1})
	require.NoError(t, err)
	one, err := Run(Options{Seed: 5, Episode: 1})
	require.NoError(t, err)
	require.Equal(t, all.Hash, one.Hash)
}

// TestSim_EveryFaultHappens keeps the schedule honest: every class of fault, every
// outcome and the node gate's refusals are reached.
func TestSim_EveryFaultHappens(t *testing.T) {
	r, err := Run(Options{Seed: 1, Steps: 150_000, DropEvents: 0.5})
	require.NoError(t, err)
	for f, n := range r.total.faults {
		require.Positive(t, n, "fault %s", Fault(f))
	}
	for o := outcomeServed; o <= outcomeDisconnected; o++ {
		require.Positive(t, r.total.outcomes[o], "outcome %d", o)
	}
	for _, res := range []admission.Result{admission.ResultFull, admission.ResultUnavailable, admission.ResultTimeout, admission.ResultCancelled, admission.ResultUnknown} {
		require.Positive(t, r.total.results[res], "result %s", res)
	}
	require.Positive(t, r.total.refusals)
	require.Positive(t, r.total.gateWaits)
	require.Positive(t, r.total.orphanRuns)
}
