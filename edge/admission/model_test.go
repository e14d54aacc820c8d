package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRandomCommands drives the core with random commands. After each, the whole
// state is checked, each effect must be one that its request could have, and no
// younger request may have passed an older one that could have gone.
func TestRandomCommands(t *testing.T) { rapid.Check(t, randomCommands) }

// FuzzCommands is the same for the coverage-guided fuzzer.
func FuzzCommands(f *testing.F) { f.Fuzz(rapid.MakeFuzz(randomCommands)) }

func randomCommands(t *rapid.T) {
	cfg := drawConfig(t)
	d := &driver{t: t, core: New(cfg), now: time.Unix(1000, 0), state: map[Seq]Effect{}}
	t.Repeat(map[string]func(*rapid.T){
		"enqueue": func(t *rapid.T) {
			req := Request{
				Group:   GroupKey(fmt.Sprint("g", rapid.IntRange(0, 4).Draw(t, "group"))),
				Class:   rapid.SampledFrom([]Class{Normal, Normal, Long}).Draw(t, "class"),
				Surface: rapid.SampledFrom([]Surface{SurfaceChat, SurfaceChat, SurfaceEmbeddings}).Draw(t, "surface"),
			}
			_, effects := d.core.Enqueue(d.now, req)
			d.take(effects)
		},
		"release": func(t *rapid.T) { d.withLease(t, d.core.Release) },
		"refuse":  func(t *rapid.T) { d.withLease(t, d.core.Refuse) },
		"track": func(t *rapid.T) {
			if e, ok := d.pick(t, Granted); ok {
				d.core.Track(e.Seq, e.Lease)
			}
		},
		"cancel": func(t *rapid.T) {
			if e, ok := d.pick(t, Queued); ok {
				effects, done := d.core.Cancel(d.now, e.Seq)
				require.True(t, done)
				d.take(effects)
			}
		},
		"connect": func(t *rapid.T) {
			_, effects := d.core.Connect(d.now, d.node(t))
			d.take(effects)
		},
		"disconnect": func(t *rapid.T) {
			gen := d.core.lastGen
			if n := d.core.nodes[d.node(t)]; n != nil && rapid.Bool().Draw(t, "current") {
				gen = n.gen
			}
			effects, _ := d.core.Disconnect(d.now, d.node(t), gen)
			d.take(effects)
		},
		"drain": func(t *rapid.T) {
			id := d.node(t)
			if n := d.core.nodes[id]; n != nil {
				effects, _ := d.core.Drain(d.now, id, n.gen)
				d.take(effects)
			}
		},
		"wait": func(t *rapid.T) {
			d.now = d.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			d.take(d.core.Expire(d.now))
			next, ok := d.core.NextDeadline()
			require.True(t, !ok || next.After(d.now), "overdue after Expire")
		},
		"reconfigure": func(t *rapid.T) {
			if rapid.IntRange(0, 2).Draw(t, "change") == 0 {
				cfg = drawConfig(t)
			} else {
				require.Empty(t, d.core.Reconfigure(d.now, cfg), "an identical refresh has effects")
				return
			}
			d.take(d.core.Reconfigure(d.now, cfg))
		},
	})
	d.drainAll()
}

type driver struct {
	t     *rapid.T
	core  *Core
	now   time.Time
	state map[Seq]Effect // the last effect of each live request
	order []Seq
}

func (d *driver) node(t *rapid.T) NodeID {
	return NodeID(fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "node")))
}

// take checks a command's effects against what each request could expect.
func (d *driver) take(effects []Effect) {
	for _, e := range effects {
		was := d.state[e.Seq]
		switch e.Kind {
		case Granted:
			require.Contains(d.t, []EffectKind{0, Queued, Requeued}, was.Kind)
			require.True(d.t, d.core.IsCurrent(e.Resource.Node, e.Gen))
		case Queued:
			require.Zero(d.t, was.Kind)
		case Requeued, Revoked:
			require.Equal(d.t, Granted, was.Kind)
		case Rejected:
			require.NotEqual(d.t, Granted, was.Kind, "a lease's holder is rejected")
		}
		if was.Kind == 0 {
			d.order = append(d.order, e.Seq)
		}
		if e.Kind == Rejected || e.Kind == Revoked {
			delete(d.state, e.Seq)
			continue
		}
		d.state[e.Seq] = e
	}
	for _, e := range effects {
		if e.Kind == Granted {
			d.checkNotPassed(e)
		}
	}
	require.NoError(d.t, checkInvariants(d.core))
	require.NoError(d.t, checkSnapshot(d.core, d.now))
}

// checkNotPassed fails if an older request still waits that could have had the
// slot just granted.
func (d *driver) checkNotPassed(e Effect) {
	for seq, r := range d.core.live() {
		if seq >= e.Seq || r.state != waiting {
			continue
		}
		for i := range r.line.links {
			res := r.line.links[i].res
			if res.cfg.Key == e.Resource && (r.class == Normal || res.longFree()) {
				require.Failf(d.t, "passed", "request %d was granted %s though %d waits for it", e.Seq, e.Resource, seq)
			}
		}
	}
}

func (d *driver) pick(t *rapid.T, kind EffectKind) (Effect, bool) {
	var of []Effect
	for _, seq := range d.order {
		e, ok := d.state[seq]
		if ok && (e.Kind == kind || kind == Queued && e.Kind == Requeued) {
			of = append(of, e)
		}
	}
	if len(of) == 0 {
		return Effect{}, false
	}
	return rapid.SampledFrom(of).Draw(t, "request"), true
}

func (d *driver) withLease(t *rapid.T, end func(time.Time, Seq, LeaseID) ([]Effect, bool)) {
	e, ok := d.pick(t, Granted)
	if !ok {
		return
	}
	effects, done := end(d.now, e.Seq, e.Lease)
	require.True(t, done)
	if len(effects) == 0 || effects[0].Seq != e.Seq {
		delete(d.state, e.Seq) // released
	}
	d.take(effects)
	_, done = end(d.now, e.Seq, e.Lease)
	require.False(t, done, "a lease ended twice")
}

// drainAll ends everything; nothing may be left.
func (d *driver) drainAll() {
	for len(d.state) > 0 {
		for _, seq := range d.order {
			switch e := d.state[seq]; e.Kind {
			case Granted:
				effects, _ := d.core.Release(d.now, seq, e.Lease)
				delete(d.state, seq)
				d.take(effects)
			case Queued, Requeued:
				effects, _ := d.core.Cancel(d.now, seq)
				d.take(effects)
			}
		}
	}
	require.Zero(d.t, d.core.requests.n)
	require.Empty(d.t, d.core.requests.pages)
	snap := d.core.Snapshot(d.now)
	require.Zero(d.t, snap.InFlight)
	require.Zero(d.t, snap.QueueTotal)
	require.Equal(d.t, snap.Counters.Granted, snap.Counters.Released)
	_, ok := d.core.NextDeadline()
	require.False(d.t, ok)
}

func drawConfig(t *rapid.T) Config {
	cfg := Config{Selection: rapid.SampledFrom([]Selection{Balanced, PriorityFirst}).Draw(t, "selection")}
	for _, key := range []ScopeKey{PoolScope, "route:g4"} {
		cfg.Scopes = append(cfg.Scopes, Scope{key, rapid.IntRange(0, 12).Draw(t, "max_queue"), time.Duration(rapid.IntRange(1, 10).Draw(t, "timeout")) * time.Second})
	}
	for n := range 3 {
		for p := range rapid.IntRange(0, 2).Draw(t, "providers") {
			cfg.Resources = append(cfg.Resources, Resource{
				Key:          ResourceKey{NodeID(fmt.Sprint("n", n)), ProviderID(fmt.Sprint("p", p))},
				Capacity:     rapid.IntRange(0, 3).Draw(t, "capacity"),
				LongCapacity: rapid.IntRange(0, 2).Draw(t, "long"),
				Priority:     rapid.IntRange(0, 1).Draw(t, "priority"),
				Enabled:      rapid.IntRange(0, 9).Draw(t, "enabled") > 0,
				Drain:        rapid.IntRange(0, 9).Draw(t, "drain") == 9,
				Health:       rapid.SampledFrom([]Health{Healthy, Healthy, Healthy, Degraded, Unhealthy}).Draw(t, "health"),
				Surfaces:     rapid.SampledFrom([]Surface{SurfaceChat, SurfaceChat | SurfaceEmbeddings}).Draw(t, "surfaces"),
			})
		}
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "groups") {
		g := Group{Key: GroupKey(fmt.Sprint("g", i)), Scope: PoolScope}
		if i == 4 {
			g.Scope = "route:g4"
		}
		for _, res := range cfg.Resources {
			if rapid.Bool().Draw(t, "candidate") {
				g.Candidates = append(g.Candidates, Candidate{res.Key, "x"})
			}
		}
		cfg.Groups = append(cfg.Groups, g)
	}
	return cfg
}
