package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
)

// recorder is a core that keeps every command it is given, in the order in which
// the broker's mutex let them through, with what followed from it.
type recorder struct {
	*admission.Core
	log []command
}

// command is one command, as it can be given again, and what it led to.
type command struct {
	name string
	play func(*admission.Core) string
	led  string
}

func (r *recorder) keep(name string, led string, play func(*admission.Core) string) {
	r.log = append(r.log, command{name, play, led})
}

func say(parts ...any) string { return fmt.Sprintf("%+v", parts) }

func (r *recorder) Enqueue(now time.Time, req admission.Request) (admission.Seq, []admission.Effect) {
	seq, effects := r.Core.Enqueue(now, req)
	r.keep("enqueue", say(seq, effects), func(c *admission.Core) string { seq, effects := c.Enqueue(now, req); return say(seq, effects) })
	return seq, effects
}

func (r *recorder) Cancel(now time.Time, seq admission.Seq) ([]admission.Effect, bool) {
	effects, ok := r.Core.Cancel(now, seq)
	r.keep("cancel", say(effects, ok), func(c *admission.Core) string { effects, ok := c.Cancel(now, seq); return say(effects, ok) })
	return effects, ok
}

func (r *recorder) Track(seq admission.Seq, lease admission.LeaseID) bool {
	ok := r.Core.Track(seq, lease)
	r.keep("track", say(ok), func(c *admission.Core) string { return say(c.Track(seq, lease)) })
	return ok
}

func (r *recorder) Release(now time.Time, seq admission.Seq, lease admission.LeaseID) ([]admission.Effect, bool) {
	effects, ok := r.Core.Release(now, seq, lease)
	r.keep("release", say(effects, ok), func(c *admission.Core) string { effects, ok := c.Release(now, seq, lease); return say(effects, ok) })
	return effects, ok
}

func (r *recorder) Refuse(now time.Time, seq admission.Seq, lease admission.LeaseID) ([]admission.Effect, bool) {
	effects, ok := r.Core.Refuse(now, seq, lease)
	r.keep("refuse", say(effects, ok), func(c *admission.Core) string { effects, ok := c.Refuse(now, seq, lease); return say(effects, ok) })
	return effects, ok
}

func (r *recorder) Connect(now time.Time, node admission.NodeID) (admission.Generation, []admission.Effect) {
	gen, effects := r.Core.Connect(now, node)
	r.keep("connect", say(gen, effects), func(c *admission.Core) string { gen, effects := c.Connect(now, node); return say(gen, effects) })
	return gen, effects
}

func (r *recorder) Disconnect(now time.Time, node admission.NodeID, gen admission.Generation) ([]admission.Effect, bool) {
	effects, ok := r.Core.Disconnect(now, node, gen)
	r.keep("disconnect", say(effects, ok), func(c *admission.Core) string { effects, ok := c.Disconnect(now, node, gen); return say(effects, ok) })
	return effects, ok
}

func (r *recorder) Reconfigure(now time.Time, cfg admission.Config) []admission.Effect {
	effects := r.Core.Reconfigure(now, cfg)
	r.keep("reconfigure", say(effects), func(c *admission.Core) string { return say(c.Reconfigure(now, cfg)) })
	return effects
}

func (r *recorder) Expire(now time.Time) []admission.Effect {
	effects := r.Core.Expire(now)
	r.keep("expire", say(effects), func(c *admission.Core) string { return say(c.Expire(now)) })
	return effects
}

// Many goroutines use a broker at once: acquire, cancel, release, refuse,
// connect, disconnect, refresh, time. The commands that reached the core, in the
// order of the lock, are then given to a fresh core: it must do the same. Nothing
// that the broker does outside the lock, and no timing, has decided anything.
func TestConcurrentUseReplaysThroughAFreshCore(t *testing.T) {
	clock := clockwork.NewFakeClock()
	rec := &recorder{Core: admission.New(site(2, 6))}
	b := New(clock, site(2, 6))
	b.core = rec

	var work, churn sync.WaitGroup
	stop := make(chan struct{})
	churn.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		gens := map[admission.NodeID]admission.Generation{"n": b.Connect("n"), "m": b.Connect("m")}
		for i := range 1 << 20 {
			select {
			case <-stop:
				return
			default:
			}
			node := []admission.NodeID{"n", "m"}[rng.IntN(2)]
			switch rng.IntN(4) {
			case 0:
				b.Disconnect(node, gens[node])
				gens[node] = b.Connect(node)
			case 1:
				b.Disconnect(node, gens[node]-1)
			case 2:
				b.Reconfigure(site(1+i%3, 6))
			case 3:
				clock.Advance(time.Duration(rng.IntN(3)) * time.Second)
			}
		}
	})
	for w := range 12 {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for range 150 {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(3) == 0 {
					go cancel()
				}
				l, err := b.Acquire(ctx, chat([]admission.GroupKey{"on-n", "both"}[rng.IntN(2)]))
				for err == nil {
					if rng.IntN(2) == 0 && l.Track() != nil || rng.IntN(4) == 0 {
						l.Refuse()
						err = l.Await(ctx)
						continue
					}
					l.Close()
					break
				}
				cancel()
			}
		})
	}
	work.Wait()
	close(stop)
	churn.Wait()

	// What chance may have left out: a cancel and a timeout of a waiter.
	b.Reconfigure(site(1, 6))
	b.Connect("n")
	held, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	leaves := acquire(t, ctx, b, "on-n")
	leave()
	require.ErrorIs(t, (<-leaves).err, context.Canceled)
	expires := acquire(t, t.Context(), b, "on-n")
	clock.Advance(time.Minute)
	var timeout *QueueTimeoutError
	require.ErrorAs(t, (<-expires).err, &timeout)
	held.Close()
	b.Stop()
	b.mu.Lock() // a timer that had fired may still be on its way
	defer b.mu.Unlock()
	require.Empty(t, b.leases)

	fresh := admission.New(site(2, 6))
	kinds := map[string]int{}
	for i, c := range rec.log {
		require.Equal(t, c.led, c.play(fresh), "command %d, %s", i, c.name)
		kinds[c.name]++
	}
	for _, name := range []string{"enqueue", "cancel", "track", "release", "refuse", "connect", "disconnect", "reconfigure", "expire"} {
		require.NotZero(t, kinds[name], "no %s among the commands: %v", name, kinds)
	}
	now := clock.Now()
	require.Equal(t, rec.Core.Snapshot(now), fresh.Snapshot(now))
	t.Logf("%d commands replayed: %v", len(rec.log), kinds)
}
