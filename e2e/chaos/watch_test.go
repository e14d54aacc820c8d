//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

func TestJudge_FindsEachThingThatMustNotBe(t *testing.T) {
	sound := func() (*controlv1.EdgeNodeSnapshot, *controlv1.ProviderSnapshot) {
		p := &controlv1.ProviderSnapshot{Id: "p", Status: "full", Health: "healthy", ConfiguredCapacity: 2, EffectiveCapacity: 2, InFlight: 2}
		return &controlv1.EdgeNodeSnapshot{
			InFlightTotal: 2, QueueTotal: 1, Counters: &controlv1.Counters{Granted: 5, Released: 3},
			Scopes: []*controlv1.ScopeSnapshot{{Key: "pool", Pending: 1, MaxQueue: 1}},
			Nodes:  []*controlv1.NodeSnapshot{{Id: "n", Connected: true, Providers: []*controlv1.ProviderSnapshot{p}}},
		}, p
	}
	snap, _ := sound()
	require.Empty(t, judge(snap))
	require.NotEmpty(t, held(snap), "two run")

	for name, spoil := range map[string]func(*controlv1.EdgeNodeSnapshot, *controlv1.ProviderSnapshot){
		"double release": func(s *controlv1.EdgeNodeSnapshot, _ *controlv1.ProviderSnapshot) { s.Counters.DoubleReleases = 1 },
		"lost lease":     func(s *controlv1.EdgeNodeSnapshot, _ *controlv1.ProviderSnapshot) { s.Counters.Released = 2 },
		"queue above limit": func(s *controlv1.EdgeNodeSnapshot, _ *controlv1.ProviderSnapshot) {
			s.Scopes[0].Pending, s.QueueTotal = 4, 4
		},
		"queue total":    func(s *controlv1.EdgeNodeSnapshot, _ *controlv1.ProviderSnapshot) { s.QueueTotal = 0 },
		"above capacity": func(_ *controlv1.EdgeNodeSnapshot, p *controlv1.ProviderSnapshot) { p.ConfiguredCapacity = 1 },
		"above long capacity": func(_ *controlv1.EdgeNodeSnapshot, p *controlv1.ProviderSnapshot) {
			p.LongContextCapacity, p.LongInFlight = 1, 2
		},
		"offline and not zero": func(s *controlv1.EdgeNodeSnapshot, _ *controlv1.ProviderSnapshot) { s.Nodes[0].Connected = false },
	} {
		snap, p := sound()
		spoil(snap, p)
		require.NotEmpty(t, judge(snap), name)
	}
}
