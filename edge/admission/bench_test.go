package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func benchCore(groups, resources, capacity int) *Core {
	cfg := Config{Scopes: []Scope{{PoolScope, 1 << 20, time.Hour}}}
	for i := range resources {
		cfg.Resources = append(cfg.Resources, Resource{Key: ResourceKey{NodeID(fmt.Sprint("n", i)), "p"}, Capacity: capacity, Enabled: true, Surfaces: SurfaceChat})
	}
	for i := range groups {
		cfg.Groups = append(cfg.Groups, Group{GroupKey(fmt.Sprint("g", i)), PoolScope, []Candidate{{cfg.Resources[i%resources].Key, "x"}}})
	}
	c := New(cfg)
	for i := range resources {
		c.Connect(time.Unix(1, 0), NodeID(fmt.Sprint("n", i)))
	}
	return c
}

// BenchmarkAdmitRelease is a request that never waits.
func BenchmarkAdmitRelease(b *testing.B) {
	c, now := benchCore(10, 10, 4), time.Unix(2, 0)
	b.ReportAllocs()
	for b.Loop() {
		seq, effects := c.Enqueue(now, Request{Group: "g3", Surface: SurfaceChat})
		c.Release(now, seq, effects[0].Lease)
	}
}

// BenchmarkHandOver is a release that grants the next of n waiters, who is
// replaced at the end of the queue.
func BenchmarkHandOver(b *testing.B) {
	for _, shape := range []struct{ waiters, groups, resources int }{{100, 10, 10}, {100_000, 10, 10}, {20_000, 10_000, 100}} {
		b.Run(fmt.Sprintf("waiters=%d/groups=%d", shape.waiters, shape.groups), func(b *testing.B) {
			c, now := benchCore(shape.groups, shape.resources, 1), time.Unix(2, 0)
			type lease struct {
				seq   Seq
				lease LeaseID
			}
			var running []lease
			groups := make([]GroupKey, shape.groups)
			for i := range groups {
				groups[i] = GroupKey(fmt.Sprint("g", i))
			}
			add := func(i int) {
				_, effects := c.Enqueue(now, Request{Group: groups[i%shape.groups], Surface: SurfaceChat})
				if e := effects[0]; e.Kind == Granted {
					running = append(running, lease{e.Seq, e.Lease})
				}
			}
			for i := range shape.waiters + shape.resources {
				add(i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				at := i % len(running)
				effects, _ := c.Release(now, running[at].seq, running[at].lease)
				running[at] = lease{effects[0].Seq, effects[0].Lease}
				add(i)
				i++
			}
		})
	}
}

// BenchmarkDrain is 2,000 waiters granted in one step, by a connection with room
// for all of them.
func BenchmarkDrain(b *testing.B) {
	now := time.Unix(2, 0)
	cfg := Config{
		Scopes: []Scope{{PoolScope, 1 << 20, time.Hour}},
		Resources: []Resource{
			{Key: ResourceKey{"busy", "p"}, Capacity: 1, Enabled: true, Surfaces: SurfaceChat},
			{Key: ResourceKey{"big", "p"}, Capacity: 2000, Enabled: true, Surfaces: SurfaceChat},
		},
		Groups: []Group{{"g", PoolScope, []Candidate{{ResourceKey{"busy", "p"}, "x"}, {ResourceKey{"big", "p"}, "x"}}}},
	}
	c := New(cfg)
	c.Connect(now, "busy")
	c.Enqueue(now, Request{Group: "g", Surface: SurfaceChat})
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for range 2000 {
			c.Enqueue(now, Request{Group: "g", Surface: SurfaceChat})
		}
		b.StartTimer()
		gen, effects := c.Connect(now, "big")
		if len(effects) != 2000 {
			b.Fatalf("%d of 2000 granted", len(effects))
		}
		b.StopTimer()
		for _, e := range effects {
			c.Track(e.Seq, e.Lease)
		}
		c.Disconnect(now, "big", gen)
		b.StartTimer()
	}
}

// BenchmarkCancelMiddle is the cancel of a waiter in the middle of n, and its
// return to the end.
func BenchmarkCancelMiddle(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			c, now := benchCore(1, 1, 1), time.Unix(2, 0)
			c.Enqueue(now, Request{Group: "g0", Surface: SurfaceChat})
			var last Seq
			for range n {
				last, _ = c.Enqueue(now, Request{Group: "g0", Surface: SurfaceChat})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := c.Cancel(now, last-Seq(n/2)); !ok {
					b.Fatal("not waiting")
				}
				last, _ = c.Enqueue(now, Request{Group: "g0", Surface: SurfaceChat})
			}
		})
	}
}

// BenchmarkSnapshot is one cut of 1,000 nodes with 4 providers each.
func BenchmarkSnapshot(b *testing.B) {
	cfg := Config{Scopes: []Scope{{PoolScope, 64, time.Hour}}}
	for n := range 1000 {
		for p := range 4 {
			cfg.Resources = append(cfg.Resources, Resource{Key: ResourceKey{NodeID(fmt.Sprint("n", n)), ProviderID(fmt.Sprint("p", p))}, Capacity: 4, Enabled: true, Surfaces: SurfaceChat})
		}
	}
	c := New(cfg)
	b.ReportAllocs()
	for b.Loop() {
		c.Snapshot(time.Unix(2, 0))
	}
}

// BenchmarkAdmitBesideWaiters is an admission on one resource while n requests
// wait for another. The p99 is of single admissions.
func BenchmarkAdmitBesideWaiters(b *testing.B) {
	for _, n := range []int{0, 5000} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			c, now := benchCore(2, 2, 1), time.Unix(2, 0)
			for range n + 1 {
				c.Enqueue(now, Request{Group: "g0", Surface: SurfaceChat})
			}
			took := make([]time.Duration, 0, 1<<22)
			b.ReportAllocs()
			for b.Loop() {
				begin := time.Now()
				seq, effects := c.Enqueue(now, Request{Group: "g1", Surface: SurfaceChat})
				if len(took) < cap(took) {
					took = append(took, time.Since(begin))
				}
				c.Release(now, seq, effects[0].Lease)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}
