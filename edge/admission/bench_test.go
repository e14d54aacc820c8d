package admission

import (
	"fmt"
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
