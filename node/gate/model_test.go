package gate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"pgregory.net/rapid"
)

// model is a gate written down plainly: times are absolute, and each change is
// followed by looking at everything again.
type model struct {
	now      time.Duration
	capacity int
	held     []Owner
	waiting  []*modelClaim // oldest first
}

type modelClaim struct {
	Claim
	since    time.Duration // of the patience; -1 while it does not run
	deadline time.Duration // of the limit; -1 = none
	fate     error         // errWaiting, nil = let in, or why not

	cancel context.CancelFunc
	done   chan outcome // of the real gate
	slot   *Slot
}

var errWaiting = errors.New("waiting")

func (m *model) foreign(o Owner) bool {
	return slices.ContainsFunc(m.held, func(h Owner) bool { return h != o })
}

// settle decides whatever is to be decided at the present time.
func (m *model) settle() {
	for _, c := range m.waiting {
		if len(m.held) < m.capacity {
			c.fate, m.held = nil, append(m.held, c.Owner)
		} else {
			break // nobody overtakes
		}
	}
	m.dropDecided()
	for _, c := range m.waiting {
		if m.foreign(c.Owner) {
			c.since = -1
		} else if c.since < 0 {
			c.since = m.now
		}
		if c.since >= 0 && m.now-c.since >= c.Patience || c.deadline >= 0 && m.now >= c.deadline {
			c.fate = ErrBusy
		}
	}
	m.dropDecided()
}

func (m *model) dropDecided() {
	m.waiting = slices.DeleteFunc(m.waiting, func(c *modelClaim) bool { return c.fate != errWaiting }) //nolint:errorlint // a mark, never wrapped
}

// TestGateAgreesWithItsModel runs random claims, releases, cancels, resizes and
// passing time against the model: the same callers are let in, in the same order,
// and the same are refused, each exactly once; never are there more than the
// capacity allowed when they were let in.
func TestGateAgreesWithItsModel(t *testing.T) {
	owners := []Owner{{1, "p"}, {2, "p"}, {2, "q"}}
	milliseconds := rapid.Map(rapid.IntRange(0, 4), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
	rapid.Check(t, func(t *rapid.T) {
		m := &model{capacity: rapid.IntRange(0, 3).Draw(t, "capacity")}
		clock := clockwork.NewFakeClock()
		g := New(m.capacity, clock)
		var claims, running, released []*modelClaim

		// settle compares every undecided claim's fate with the real one.
		settle := func() {
			m.settle()
			claims = slices.DeleteFunc(claims, func(c *modelClaim) bool {
				if c.fate == errWaiting { //nolint:errorlint // a mark, never wrapped
					return false
				}
				o := <-c.done
				if !errors.Is(o.err, c.fate) || (o.slot == nil) != (c.fate != nil) {
					t.Fatalf("claim %+v ended with %v, want %v", c.Claim, o.err, c.fate)
				}
				if c.cancel(); o.slot != nil {
					c.slot = o.slot
					running = append(running, c)
				}
				return true
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				c := &modelClaim{
					Claim: Claim{rapid.SampledFrom(owners).Draw(t, "owner"), milliseconds.Draw(t, "patience"), milliseconds.Draw(t, "limit")},
					since: -1, deadline: -1, fate: errWaiting, cancel: cancel, done: make(chan outcome, 1),
				}
				if c.Limit > 0 {
					c.deadline = m.now + c.Limit
				}
				m.waiting, claims = append(m.waiting, c), append(claims, c)
				before := g.Waiting()
				go func() {
					slot, err := g.Acquire(ctx, c.Claim)
					c.done <- outcome{slot, err}
				}()
				if m.settle(); c.fate == errWaiting { //nolint:errorlint // a mark, never wrapped
					for g.Waiting() == before { // order of arrival
						if len(c.done) > 0 {
							t.Fatalf("claim %+v did not wait", c.Claim)
						}
					}
				}
				settle()
			},
			"release": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("nothing runs")
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "slot")
				c := running[i]
				running = slices.Delete(running, i, i+1)
				at := slices.Index(m.held, c.Owner)
				m.held = slices.Delete(m.held, at, at+1)
				released = append(released, c)
				c.slot.Release()
				settle()
			},
			"release again": func(t *rapid.T) {
				if len(released) == 0 {
					t.Skip("nothing released")
				}
				rapid.SampledFrom(released).Draw(t, "slot").slot.Release()
				settle()
			},
			"cancel": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip("nobody waits")
				}
				c := rapid.SampledFrom(m.waiting).Draw(t, "claim")
				c.fate = context.Canceled
				m.dropDecided()
				c.cancel()
				settle()
			},
			"resize": func(t *rapid.T) {
				m.capacity = rapid.IntRange(0, 3).Draw(t, "capacity")
				g.Resize(m.capacity)
				settle()
			},
			"time": func(t *rapid.T) {
				clock.Advance(time.Millisecond)
				m.now += time.Millisecond
				settle()
			},
			"": func(t *rapid.T) {
				if g.InUse() != len(m.held) || g.Waiting() != len(m.waiting) || g.Capacity() != m.capacity {
					t.Fatalf("%d of %d in use, %d waiting; want %d of %d and %d",
						g.InUse(), g.Capacity(), g.Waiting(), len(m.held), m.capacity, len(m.waiting))
				}
				for _, c := range claims {
					if len(c.done) > 0 {
						t.Fatalf("claim %+v ended, and should wait", c.Claim)
					}
				}
			},
		})
		for _, c := range claims {
			c.cancel()
			<-c.done
		}
	})
}
