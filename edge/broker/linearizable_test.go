package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
)

// What callers do and see from outside.
type (
	operation struct {
		kind  string // acquire, close, connect, disconnect
		group admission.GroupKey
		node  admission.NodeID // connect, disconnect; close: of the lease
		gen   admission.Generation
	}
	outcome struct {
		kind string // granted, full, unavailable; done, stale
		node admission.NodeID
		gen  admission.Generation
	}
	// world is the sequential model: which generation owns each node, and how
	// many leases of it are held.
	world struct {
		gen  [2]admission.Generation // 0 = not connected
		held [2]int
	}
)

const modelCapacity = 2

func index(node admission.NodeID) int {
	if node == "n" {
		return 0
	}
	return 1
}

// spec is the contract of a broker at which nobody may wait: an acquire gets a
// slot of the least loaded live candidate if there is a free one, is told full if
// all are taken, and unavailable if none is live.
var spec = porcupine.Model{
	Init: func() any { return world{} },
	Step: func(state, input, output any) (bool, any) {
		w, op, out := state.(world), input.(operation), output.(outcome)
		switch op.kind {
		case "connect":
			i := index(op.node)
			w.gen[i], w.held[i] = out.gen, 0
			return true, w
		case "disconnect":
			i := index(op.node)
			current := w.gen[i] != 0 && w.gen[i] == op.gen
			if current {
				w.gen[i], w.held[i] = 0, 0
			}
			return current == (out.kind == "done"), w
		case "close":
			if i := index(op.node); w.gen[i] == op.gen {
				w.held[i]--
			}
			return true, w
		}
		live, best := false, -1
		for _, i := range map[admission.GroupKey][]int{"on-n": {0}, "on-m": {1}, "both": {0, 1}}[op.group] {
			if w.gen[i] == 0 {
				continue
			}
			live = true
			if w.held[i] < modelCapacity && (best < 0 || w.held[i] < w.held[best] || w.held[i] == w.held[best] && i == 1) {
				best = i // equal load: by key, and "m" comes before "n"
			}
		}
		switch out.kind {
		case "granted":
			if best < 0 || index(out.node) != best || w.gen[best] != out.gen {
				return false, w
			}
			w.held[best]++
			return true, w
		case "full":
			return live && best < 0, w
		default:
			return !live, w
		}
	},
	Equal: func(a, b any) bool { return a.(world) == b.(world) },
}

// What concurrent callers see of a broker could have been seen one call after
// another. With nodes that come and go each group has one candidate: a lease that
// is fenced before hand-off would else move, which is more than one operation.
func TestS01_S12_CallersSeeALinearOrder(t *testing.T) {
	for seed := range uint64(12) {
		for _, churn := range []bool{false, true} {
			history := observe(t, seed, churn)
			require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(spec, history, 20*time.Second), "seed %d, churn %t", seed, churn)
		}
	}
}

// The check can fail: a broker that reports a slot of the wrong node is caught.
func TestTheLinearCheckCanFail(t *testing.T) {
	history := []porcupine.Operation{
		{Input: operation{kind: "connect", node: "n"}, Output: outcome{kind: "done", gen: 1}, Call: 0, Return: 1},
		{Input: operation{kind: "acquire", group: "both"}, Output: outcome{kind: "granted", node: "m", gen: 1}, Call: 2, Return: 3},
	}
	require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(spec, history, time.Second))
}

// caller is one goroutine's use of the broker.
type caller struct {
	t      *testing.T
	broker *Broker
	rng    *rand.Rand
	groups []admission.GroupKey
	leases []*Lease
	gens   *[2]atomic.Uint64 // last known owner of each node
}

func (c *caller) acquire() (operation, outcome) {
	op := operation{kind: "acquire", group: c.groups[c.rng.IntN(len(c.groups))]}
	l, err := c.broker.Acquire(context.Background(), chat(op.group))
	var full *QueueFullError
	var none *UnavailableError
	switch {
	case err == nil:
		c.leases = append(c.leases, l)
		return op, outcome{kind: "granted", node: l.Resource.Node, gen: l.Generation}
	case errors.As(err, &full):
		return op, outcome{kind: "full"}
	case errors.As(err, &none):
		return op, outcome{kind: "unavailable"}
	}
	c.t.Errorf("acquire: %v", err)
	return op, outcome{}
}

func (c *caller) close() (operation, outcome) {
	l := c.leases[0]
	c.leases = c.leases[1:]
	l.Close()
	return operation{kind: "close", node: l.Resource.Node, gen: l.Generation}, outcome{kind: "done"}
}

func (c *caller) connect(node admission.NodeID) (operation, outcome) {
	gen := c.broker.Connect(node)
	c.gens[index(node)].Store(uint64(gen))
	return operation{kind: "connect", node: node}, outcome{kind: "done", gen: gen}
}

func (c *caller) disconnect(node admission.NodeID) (operation, outcome) {
	op := operation{kind: "disconnect", node: node, gen: admission.Generation(c.gens[index(node)].Load())}
	if c.broker.Disconnect(node, op.gen) {
		return op, outcome{kind: "done"}
	}
	return op, outcome{kind: "stale"}
}

func (c *caller) act(churn bool) (operation, outcome) {
	node := []admission.NodeID{"n", "m"}[c.rng.IntN(2)]
	switch k := c.rng.IntN(10); {
	case churn && k == 0:
		return c.connect(node)
	case churn && k == 1:
		return c.disconnect(node)
	case k < 6 && len(c.leases) > 0:
		return c.close()
	default:
		return c.acquire()
	}
}

// observe lets four callers loose on one broker and returns what they saw, in
// ticks of a shared counter.
func observe(t *testing.T, seed uint64, churn bool) []porcupine.Operation {
	t.Helper()
	b := New(clockwork.NewFakeClock(), site(modelCapacity, 0))
	defer b.Stop()
	var (
		tick    atomic.Int64
		mu      sync.Mutex
		history []porcupine.Operation
		gens    [2]atomic.Uint64
		wg      sync.WaitGroup
	)
	keep := func(client int, call int64, op operation, out outcome) {
		ret := tick.Add(1)
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: op, Output: out, Call: call, Return: ret})
	}
	groups := []admission.GroupKey{"on-n", "on-m"}
	if !churn {
		groups = append(groups, "both")
	}
	for client := range 4 {
		c := &caller{t: t, broker: b, rng: rand.New(rand.NewPCG(seed, uint64(client))), groups: groups, gens: &gens}
		if client == 0 {
			for _, node := range []admission.NodeID{"n", "m"} {
				call := tick.Add(1)
				op, out := c.connect(node)
				keep(client, call, op, out)
			}
		}
		wg.Go(func() {
			for range 25 {
				call := tick.Add(1)
				op, out := c.act(churn)
				keep(client, call, op, out)
			}
		})
	}
	wg.Wait()
	return history
}
