package provider

import (
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// simulators is list number revision, with a simulator of the name "p" of
// capacity n.
func simulators(revision uint64, n uint32) *runtimev1.ProviderSet {
	return &runtimev1.ProviderSet{Revision: revision, Providers: []*runtimev1.Provider{
		{Id: "p", Type: "simulator", Capacity: n, Simulator: &runtimev1.Simulator{}, Cancel: "forward"},
	}}
}

// chosenBy is a request for p that names list number revision.
func chosenBy(revision uint64) (*runtimev1.RequestBegin, string) {
	const body = `{"model":"simulator","messages":[{"role":"user","content":"hi"}]}`
	b := begin(body)
	b.ProviderRevision = revision
	return b, body
}

// The list that names a provider and a request for it travel on different
// streams: a request that is faster waits for the list, for a bounded time.
func TestRequestThatOvertakesItsProviderList(t *testing.T) {
	for name, c := range map[string]struct {
		before, after *runtimev1.ProviderSet
		names         uint64
		ifNeverComes  runtimev1.FailureCode
	}{
		"a new provider, of an older Edge": {list(), simulators(0, 1), 0, neverOpened},
		"a new provider":                   {&runtimev1.ProviderSet{Revision: 1}, simulators(2, 1), 2, neverOpened},
		"a raised capacity":                {simulators(1, 0), simulators(2, 1), 2, busy},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			s := newSet(t, clock)
			s.ApplyAnew(c.before)
			b, body := chosenBy(c.names)
			late, doneLate := start(t, t.Context(), s, b, body)
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(listPatience)
			require.NoError(t, await(t, doneLate, "the end of the patience"))
			assert.Equal(t, c.ifNeverComes, late.code())

			a, done := start(t, t.Context(), s, b, body)
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			s.Apply(c.after)
			require.NoError(t, await(t, done, "the answer"))
			a.whole()
		})
	}
}

func TestRequestWaitsForNoListThatIsHere(t *testing.T) {
	clock := clockwork.NewFakeClock()
	s := newSet(t, clock)
	s.ApplyAnew(simulators(7, 1))
	for _, named := range []uint64{0, 6, 7} {
		b, body := chosenBy(named)
		a := &answer{t: t}
		require.NoError(t, s.Run(t.Context(), b, []byte(body), a))
		a.whole()
	}
	// Another session, another Edge: revisions begin again.
	s.ApplyAnew(simulators(1, 1))
	b, body := chosenBy(2)
	a, done := start(t, t.Context(), s, b, body)
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(listPatience - time.Millisecond)
	assert.Empty(t, done)
	s.Apply(simulators(2, 1))
	require.NoError(t, await(t, done, "the answer"))
	a.whole()
}
