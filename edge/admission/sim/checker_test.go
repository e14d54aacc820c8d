package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
)

var (
	a = admission.ResourceKey{Node: "a", Provider: "p"} // capacity 1, no long limit
	b = admission.ResourceKey{Node: "b", Provider: "p"} // capacity 3, one of them long
)

// liar tells the checker a story of commands and effects in which everything is
// as it must be, until a test lets it lie.
type liar struct {
	*checker
	core core // tells the truth
	now  time.Time
}

func newLiar() *liar {
	l := &liar{checker: newChecker([]admission.ResourceKey{a, b}, 32), now: epoch.Add(time.Second)}
	cfg := liarConfig()
	l.core = admission.New(cfg)
	l.configure(&cfg)
	return l
}

func liarConfig() admission.Config {
	return admission.Config{
		Scopes: []admission.Scope{{Key: admission.PoolScope, MaxQueue: 2, Timeout: 10 * time.Second}},
		Resources: []admission.Resource{
			{Key: a, Capacity: 1, Enabled: true, Surfaces: admission.SurfaceChat},
			{Key: b, Capacity: 3, LongCapacity: 1, Enabled: true, Surfaces: admission.SurfaceChat},
		},
		Groups: []admission.Group{
			{Key: "on-a", Scope: admission.PoolScope, Candidates: []admission.Candidate{{Resource: a, Target: "x"}}},
			{Key: "on-b", Scope: admission.PoolScope, Candidates: []admission.Candidate{{Resource: b, Target: "y"}}},
			{Key: "both", Scope: admission.PoolScope, Candidates: []admission.Candidate{{Resource: a, Target: "x"}, {Resource: b, Target: "y"}}},
		},
	}
}

func (l *liar) connects(id admission.NodeID) admission.Generation {
	gen, effects := l.core.Connect(l.now, id)
	l.connect(l.now, id, gen, effects)
	return gen
}

// asks sends a request and returns its effect as the checker has seen it.
func (l *liar) asks(group admission.GroupKey, class admission.Class) admission.Effect {
	e := l.hears(group, class)
	l.enqueue(l.now, request(group, class), e.Seq, []admission.Effect{e})
	return e
}

// hears sends a request whose effect the checker has yet to see.
func (l *liar) hears(group admission.GroupKey, class admission.Class) admission.Effect {
	_, effects := l.core.Enqueue(l.now, request(group, class))
	return effects[0]
}

func request(group admission.GroupKey, class admission.Class) admission.Request {
	return admission.Request{Group: group, Class: class, Surface: admission.SurfaceChat}
}

func effects(es ...admission.Effect) []admission.Effect { return es }

// TestSim_EachInvariantCanFail feeds each check something that must never be, and
// looks for its name.
func TestSim_EachInvariantCanFail(t *testing.T) {
	lies := map[Invariant]func(*liar){
		Capacity: func(l *liar) {
			l.connects("a")
			e := l.asks("on-a", admission.Normal)
			e.Seq, e.Lease = 2, e.Lease+1
			l.enqueue(l.now, request("on-a", admission.Normal), 2, effects(e))
		},
		LongSlots: func(l *liar) {
			l.connects("b")
			e := l.asks("on-b", admission.Long)
			e.Seq, e.Lease = 2, e.Lease+1
			l.enqueue(l.now, request("on-b", admission.Long), 2, effects(e))
		},
		Balance: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			s := l.core.Snapshot(l.now)
			s.Resources[0].InFlight++
			l.snapshot(l.now, &s)
		},
		EndsOnce: func(l *liar) {
			l.connects("a")
			e := l.asks("on-a", admission.Normal)
			l.release(l.now, e.Seq, e.Lease, nil, true)
			l.release(l.now, e.Seq, e.Lease, nil, true)
		},
		CurrentGen: func(l *liar) {
			l.connects("a")
			e := l.hears("on-a", admission.Normal)
			e.Gen++
			l.enqueue(l.now, request("on-a", admission.Normal), e.Seq, effects(e))
		},
		StaleClose: func(l *liar) {
			gen := l.connects("a")
			l.connects("a")
			l.disconnect(l.now, "a", gen, nil, true)
		},
		NoIdleSlot: func(l *liar) {
			l.connects("a")
			e := l.asks("on-a", admission.Normal)
			l.asks("on-a", admission.Normal)
			l.release(l.now, e.Seq, e.Lease, nil, true) // and nobody is woken
		},
		Order: func(l *liar) {
			l.connects("a")
			e := l.asks("on-a", admission.Normal)
			l.asks("on-a", admission.Normal)
			young := l.asks("on-a", admission.Normal)
			l.release(l.now, e.Seq, e.Lease, effects(admission.Effect{
				Kind: admission.Granted, Seq: young.Seq, Lease: e.Lease + 1, Resource: a, Gen: e.Gen, Target: "x",
			}), true)
		},
		QueueLimit: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			l.asks("on-a", admission.Normal)
			e := l.asks("on-a", admission.Normal)
			e.Seq++
			l.enqueue(l.now, request("on-a", admission.Normal), e.Seq, effects(e))
		},
		OneOutcome: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			e := l.asks("on-a", admission.Normal)
			end := effects(admission.Effect{Kind: admission.Rejected, Seq: e.Seq, Result: admission.ResultCancelled})
			l.cancel(l.now, e.Seq, end, true)
			l.cancel(l.now, e.Seq, end, true)
		},
		LiveCandidate: func(l *liar) {
			gen := l.connects("a")
			first := l.asks("on-a", admission.Normal)
			l.track(l.now, first.Seq, first.Lease, true)
			l.asks("on-a", admission.Normal)
			l.disconnect(l.now, "a", gen, effects(admission.Effect{ // and the waiter is forgotten
				Kind: admission.Revoked, Seq: first.Seq, Lease: first.Lease, Resource: a, Gen: gen,
			}), true)
		},
		RefreshNoop: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			before := l.core.Snapshot(l.now)
			after := l.core.Snapshot(l.now)
			after.Resources[0].Capacity++
			l.same(&before, &after)
		},
		Independence: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			first, second := l.asks("on-a", admission.Normal), l.asks("on-a", admission.Normal)
			l.cancel(l.now, first.Seq, effects(
				admission.Effect{Kind: admission.Rejected, Seq: first.Seq, Result: admission.ResultCancelled},
				admission.Effect{Kind: admission.Rejected, Seq: second.Seq, Result: admission.ResultCancelled},
			), true)
		},
		SnapshotIsTrue: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			l.asks("both", admission.Normal)
			s := l.core.Snapshot(l.now)
			s.Resources[0].Queued = 0
			l.snapshot(l.now, &s)
		},
		NothingLeft: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			s := l.core.Snapshot(l.now)
			l.nothingLeft(&s, false)
		},
		Selection: func(l *liar) {
			l.connects("a")
			l.connects("b")
			l.asks("on-b", admission.Normal)
			e := l.hears("both", admission.Normal) // a, which is idle
			e.Resource, e.Target, e.Gen = b, "y", e.Gen+1
			l.enqueue(l.now, request("both", admission.Normal), e.Seq, effects(e))
		},
		Eligibility: func(l *liar) {
			l.connects("a")
			e := l.hears("on-a", admission.Normal)
			e.Target = "y"
			l.enqueue(l.now, request("on-a", admission.Normal), e.Seq, effects(e))
		},
		DeadlineRule: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			e := l.asks("on-a", admission.Normal)
			l.now = l.now.Add(9 * time.Second)
			l.expire(l.now, effects(admission.Effect{Kind: admission.Rejected, Seq: e.Seq, Result: admission.ResultTimeout}))
		},
		ReasonRule: func(l *liar) {
			l.connects("a")
			l.asks("on-a", admission.Normal)
			e := l.hears("on-a", admission.Normal)
			e.Reason = admission.ReasonBehind
			l.enqueue(l.now, request("on-a", admission.Normal), e.Seq, effects(e))
		},
	}
	// Shown by runs, below and in sim_test.go: they are not about one command.
	elsewhere := []Invariant{NoPanic, EventsDropped, ProviderGate, Determinism, Liveness}
	for inv := NoPanic; inv < invariants; inv++ {
		lie := lies[inv]
		if lie == nil {
			require.Contains(t, elsewhere, inv, "no lie violates %s", inv)
			continue
		}
		t.Run(inv.String(), func(t *testing.T) {
			l := newLiar()
			lie(l)
			require.NotNil(t, l.err, "the lie is believed")
			require.Equal(t, inv, l.err.Invariant, l.err.Detail)
			require.ErrorContains(t, l.err, inv.String())
			require.NotEmpty(t, l.err.Trace)
		})
	}
}

// TestSim_TruthIsBelieved is the other half: the same story without a lie.
func TestSim_TruthIsBelieved(t *testing.T) {
	l := newLiar()
	l.connects("a")
	l.connects("b")
	e := l.asks("on-a", admission.Normal)
	l.asks("on-b", admission.Long)
	l.asks("on-a", admission.Normal)
	es, ok := l.core.Release(l.now, e.Seq, e.Lease)
	l.release(l.now, e.Seq, e.Lease, es, ok)
	s := l.core.Snapshot(l.now)
	l.snapshot(l.now, &s)
	require.Nil(t, l.err)
}

// TestSim_ProviderGateCanFail lets two executions run where one may.
func TestSim_ProviderGateCanFail(t *testing.T) {
	w := &world{check: newChecker(nil, 8), site: &site{keys: []admission.ResourceKey{a}, perNode: 1}}
	s := &session{}
	w.machines = []machine{{session: s, gates: make([]gate, 1)}}
	g := &w.machines[0].gates[0]
	x := &execution{session: s, running: true}
	g.capacity, g.running = 1, []*execution{x, {session: &session{}, running: true}}
	w.checkGate(x, g)
	require.NotNil(t, w.check.err)
	require.Equal(t, ProviderGate, w.check.err.Invariant)
	require.ErrorContains(t, w.check.err, "1 of them orphans")
}

// sabotaged is a core with one fault, to show that a whole run finds it.
type sabotaged struct {
	core
	calls int
	fault func(*sabotaged, []admission.Effect) []admission.Effect
}

func (s *sabotaged) Release(now time.Time, seq admission.Seq, lease admission.LeaseID) ([]admission.Effect, bool) {
	es, ok := s.core.Release(now, seq, lease)
	s.calls++
	return s.fault(s, es), ok
}

// TestSim_SabotageIsFound runs whole simulations of cores that go wrong after a
// while. The error names invariant, seed, episode and step, and the same seed
// finds it again.
func TestSim_SabotageIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		inv   Invariant
		fault func(*sabotaged, []admission.Effect) []admission.Effect
	}{
		"a wake-up is lost": {NoIdleSlot, func(s *sabotaged, es []admission.Effect) []admission.Effect {
			if s.calls > 20 && len(es) > 0 {
				return es[:len(es)-1]
			}
			return es
		}},
		"it panics": {NoPanic, func(s *sabotaged, es []admission.Effect) []admission.Effect {
			if s.calls > 20 {
				panic("sabotage")
			}
			return es
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Seed: 1, Steps: 20_000, newCore: func(cfg admission.Config) core {
				return &sabotaged{core: admission.New(cfg), fault: c.fault}
			}}
			_, err := Run(o)
			var v, again *Violation
			require.ErrorAs(t, err, &v)
			require.Equal(t, c.inv, v.Invariant, v.Error())
			require.ErrorContains(t, err, "seed 1, episode ")
			_, err = Run(o)
			require.True(t, errors.As(err, &again))
			require.Equal(t, v.Step, again.Step)
			require.Equal(t, v.Trace, again.Trace)
		})
	}
}

// forgetful never says when the first wait ends: nobody times out.
type forgetful struct{ core }

func (f forgetful) NextDeadline() (time.Time, bool) { return time.Time{}, false }

// TestSim_LivenessCanFail shows that what never ends is found, and that the
// missing timer is.
func TestSim_LivenessCanFail(t *testing.T) {
	_, err := Run(Options{Seed: 1, Steps: 5_000, newCore: func(cfg admission.Config) core { return forgetful{admission.New(cfg)} }})
	var v *Violation
	require.ErrorAs(t, err, &v)
	require.Equal(t, NothingLeft, v.Invariant) // the check of the timer comes first

	r := &runner{check: newChecker(nil, 8)}
	w := &world{check: r.check, live: 1}
	r.wind(&edge{world: w}) // a request lives, and nothing will ever happen
	require.NotNil(t, r.check.err)
	require.Equal(t, Liveness, r.check.err.Invariant)
}

// nosy is a core on which being read leaves a mark.
type nosy struct {
	core
	reads *int
}

func (n nosy) Record(seq admission.Seq) (admission.Record, bool) {
	*n.reads++
	return n.core.Record(seq)
}

func (n nosy) Enqueue(now time.Time, req admission.Request) (admission.Seq, []admission.Effect) {
	seq, es := n.core.Enqueue(now, req)
	if es[0].Kind == admission.Granted {
		es[0].Deadline = epoch.Add(time.Duration(*n.reads)) // which no rule forbids
	}
	return seq, es
}

// TestSim_ComparisonsCanFail runs a core that its readers change, and one that
// remembers earlier runs.
func TestSim_ComparisonsCanFail(t *testing.T) {
	o := Options{Seed: 1, Steps: 2_000}
	o.newCore = func(cfg admission.Config) core { return nosy{admission.New(cfg), new(int)} }
	err := Prove(o)
	require.ErrorContains(t, err, "12 events dropped")
	require.NotContains(t, err.Error(), "18 determinism")

	reads := new(int)
	o.newCore = func(cfg admission.Config) core { return nosy{admission.New(cfg), reads} }
	require.ErrorContains(t, Prove(o), "18 determinism")
}

// keeper is a core that goes on using the memory of the configuration that it was
// given.
type keeper struct {
	core
	given []admission.Scope
}

func (k *keeper) Reconfigure(now time.Time, cfg admission.Config) []admission.Effect {
	k.given = cfg.Scopes
	return k.core.Reconfigure(now, cfg)
}

func (k *keeper) Snapshot(now time.Time) admission.Snapshot {
	s := k.core.Snapshot(now)
	for i := range k.given {
		s.Scopes[i].Scope = k.given[i]
	}
	return s
}

// TestSim_FailedRefreshIsNoticed shows the other half of invariant 13: a draft
// that is thrown away must not reach what is in force.
func TestSim_FailedRefreshIsNoticed(t *testing.T) {
	_, err := Run(Options{Seed: 1, Steps: 20_000, newCore: func(cfg admission.Config) core { return &keeper{core: admission.New(cfg)} }})
	require.ErrorContains(t, err, "16 snapshot")
}
