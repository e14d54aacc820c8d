package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"

	"github.com/iop-dev/iop/edge/admission"
)

// Options say what to simulate.
type Options struct {
	Seed       uint64
	Steps      int     // least number of steps; the episode under way is ended
	DropEvents float64 // share of published events that no subscriber gets, 0 to 1
	Episode    int     // run this one alone, if not 0
	Tail       int     // commands and effects that a violation shows; 0 = 48

	newCore func(admission.Config) core
}

// Result is what a run was like.
type Result struct {
	Seed     uint64
	Steps    int    // events and faults, all invariants checked after each
	Episodes int    // each with a site of its own
	Hash     uint64 // of every command and effect
	Largest  int    // resources of the largest site

	total tally
}

// Faults is how many faults were injected, all classes together.
func (r *Result) Faults() (n int) {
	for _, k := range r.total.faults {
		n += k
	}
	return n
}

// Grants is how many leases were granted.
func (r *Result) Grants() int { return r.total.grants }

// Run simulates until the steps are done or something happens that must never
// be: then the error is a [*Violation].
func Run(o Options) (*Result, error) {
	if o.newCore == nil {
		o.newCore = func(cfg admission.Config) core { return admission.New(cfg) }
	}
	if o.Tail == 0 {
		o.Tail = 48
	}
	r := &runner{Options: o, result: Result{Seed: o.Seed, Hash: hashSeed}, check: newChecker(nil, o.Tail)}
	first := max(o.Episode, 1)
	for n := first; r.result.Steps < o.Steps || n == first; n++ {
		if v := r.episode(n); v != nil {
			v.Seed, v.Episode = o.Seed, n
			return &r.result, v
		}
		if o.Episode != 0 {
			break
		}
	}
	return &r.result, nil
}

type runner struct {
	Options
	result Result
	check  *checker
	edge   *edge
}

// episode runs one site through both phases. Its random numbers depend on seed
// and number alone, so that it can be run by itself.
func (r *runner) episode(n int) (v *Violation) {
	defer func() {
		if p := recover(); p != nil {
			// After a violation the world may stumble; the violation is the news.
			r.check.fail(NoPanic, "panic: %v\n%s", p, debug.Stack())
			v = r.check.err
		}
	}()
	e := newEdge(r.edge, rand.New(rand.NewPCG(r.Seed, uint64(n))), rand.New(rand.NewPCG(r.Seed, uint64(n)<<32)), r.check, r.newCore)
	e.drop = r.DropEvents
	r.edge = e
	r.faulty(e)
	if r.check.err == nil {
		r.wind(e)
	}
	if r.check.err == nil {
		r.healed(e)
	}
	t := &r.result
	t.Episodes++
	t.Largest = max(t.Largest, len(e.site.keys))
	t.Hash = (t.Hash ^ r.check.trace.hash) * hashPrime
	t.total.add(&e.tally)
	return r.check.err
}

func (r *runner) step(e *edge) {
	r.result.Steps++
	r.check.step = r.result.Steps
	e.step()
}

// faulty is the first phase: safety under faults.
func (r *runner) faulty(e *edge) {
	e.faulty, e.open = true, true
	e.after(0, event{kind: evArrive})
	oneIn := 8 << e.rng.IntN(5)
	for range 200 + e.rng.IntN(3000) {
		if r.check.err != nil {
			return
		}
		if e.rng.IntN(oneIn) == 0 {
			r.result.Steps++
			r.check.step = r.result.Steps
			e.chaos()
			continue
		}
		r.step(e)
	}
	e.faulty, e.open = false, false
}

// patience is how many steps an episode may need to come to rest.
const patience = 2_000_000

// entriesLookedFor is for how many of the last requests of an episode the core is
// asked whether it still holds them for live.
const entriesLookedFor = 100

// wind lets everything under way come to its end; faults have stopped.
func (r *runner) wind(e *edge) {
	for i := 0; e.live > 0 || e.pending > 0; i++ {
		if r.check.err != nil {
			return
		}
		if i == patience || len(e.heap) == 0 {
			r.check.fail(Liveness, "%d requests have not ended, %d events are pending", e.live, e.pending)
			return
		}
		r.step(e)
	}
	if r.check.err != nil {
		return
	}
	e.compareSnapshot()
	s := e.core.Snapshot(e.time())
	_, timer := e.core.NextDeadline()
	r.check.nothingLeft(&s, timer)
	for i := max(0, len(e.calls)-entriesLookedFor); i < len(e.calls); i++ {
		seq := admission.Seq(i + 1)
		rec, ok := e.core.Record(seq)
		r.check.ended(seq, &rec, ok)
	}
	for n := range e.machines {
		for j := range e.machines[n].gates {
			if g := &e.machines[n].gates[j]; len(g.running)+len(g.waiting) != 0 {
				r.check.fail(NothingLeft, "%s is left with %d executions", e.site.keys[n*e.site.perNode+j], len(g.running)+len(g.waiting))
			}
		}
	}
}

// healed is the rest of the second phase: with a site that can serve everything,
// everything is served.
func (r *runner) healed(e *edge) {
	e.site.heal()
	e.refresh("healed", false)
	for n := range e.machines {
		e.machines[n].until = 0
	}
	for i := 0; r.check.err == nil && !r.connected(e); i++ {
		if i == patience {
			r.check.fail(Liveness, "nodes of the healed site do not connect")
			return
		}
		r.step(e)
	}
	for n, s := range e.current {
		if s != nil && s.ready {
			e.after(0, event{kind: evConfig, node: int32(n), session: s})
		}
	}
	served := e.outcomes[outcomeServed]
	wave := 0
	for i := range e.site.groups {
		if !e.site.groups[i].present {
			continue
		}
		for j := range 6 {
			wave++
			e.enqueue(admission.Request{Group: e.site.groupKeys[i], Surface: admission.SurfaceChat, Class: admission.Class(j % 2)})
		}
	}
	r.wind(e)
	if got := e.outcomes[outcomeServed] - served; r.check.err == nil && got != wave {
		r.check.fail(Liveness, "of %d requests to the healed site only %d were served", wave, got)
	}
}

// connected reports whether every configured node has a session that both ends
// know.
func (r *runner) connected(e *edge) bool {
	for n := range e.machines {
		s := e.current[n]
		if e.site.configured(n) && (s == nil || e.machines[n].session != s || s.dead || e.check.nodes[n].draining) {
			return false
		}
	}
	return true
}

func (t *tally) add(o *tally) {
	t.commands += o.commands
	t.grants += o.grants
	t.refusals += o.refusals
	t.gateWaits += o.gateWaits
	t.orphanRuns += o.orphanRuns
	t.published += o.published
	for i, n := range o.faults {
		t.faults[i] += n
	}
	for i, n := range o.results {
		t.results[i] += n
	}
	for i, n := range o.outcomes {
		t.outcomes[i] += n
	}
}

// Compare fails if two runs that must be the same are not: of one seed, and of
// one share of dropped events or of two.
func Compare(a, b *Result, inv Invariant) error {
	if a.Hash == b.Hash && a.Steps == b.Steps {
		return nil
	}
	return &Violation{Invariant: inv, Seed: a.Seed, Detail: fmt.Sprintf("%d steps with trace %016x, then %d steps with trace %016x", a.Steps, a.Hash, b.Steps, b.Hash)}
}

// Prove runs one seed again and again and compares: as it is, and with events
// dropped at 0, 50 and 100 %.
func Prove(o Options) error {
	o.DropEvents = 0
	first, err := Run(o)
	if err != nil {
		return err
	}
	var errs []error
	for _, again := range []struct {
		drop float64
		inv  Invariant
	}{{0, Determinism}, {0.5, EventsDropped}, {1, EventsDropped}} {
		o.DropEvents = again.drop
		next, err := Run(o)
		if err != nil {
			return err
		}
		errs = append(errs, Compare(first, next, again.inv))
	}
	return errors.Join(errs...)
}

// String is a summary in a few lines.
func (r *Result) String() string {
	var b strings.Builder
	t := &r.total
	fmt.Fprintf(&b, "seed %d: %d steps in %d episodes, %d commands, trace %016x; largest site %d resources\n", r.Seed, r.Steps, r.Episodes, t.commands, r.Hash, r.Largest)
	fmt.Fprintf(&b, "requests: %d served, %d failed, %d disconnected, %d cancelled, %d rejected (%d full, %d unavailable, %d timeout)\n",
		t.outcomes[outcomeServed], t.outcomes[outcomeFailed], t.outcomes[outcomeDisconnected], t.outcomes[outcomeCancelled], t.outcomes[outcomeRejected],
		t.results[admission.ResultFull], t.results[admission.ResultUnavailable], t.results[admission.ResultTimeout])
	fmt.Fprintf(&b, "%d grants, %d refused by nodes; %d hand-offs waited in a gate, %d started beside an orphan; %d events published\n", t.grants, t.refusals, t.gateWaits, t.orphanRuns, t.published)
	fmt.Fprintf(&b, "%d faults:", r.Faults())
	for f, n := range t.faults {
		fmt.Fprintf(&b, " %s %d;", Fault(f), n)
	}
	b.WriteByte('\n')
	return b.String()
}
