//go:build !windows

package e2e

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// path is the network between a node and a provider. Connections that cross it
// can go dead without a sign: neither end is told, and nothing passes any more.
type path struct {
	net.Listener
	all sync.WaitGroup

	mu    sync.Mutex
	conns []*crossing
}

type crossing struct {
	near, far net.Conn
	dead      atomic.Bool
}

func newPath(t *testing.T, to string) *path {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &path{Listener: l}
	p.all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				_ = near.Close()
				continue
			}
			c := &crossing{near: near, far: far}
			p.mu.Lock()
			p.conns = append(p.conns, c)
			p.mu.Unlock()
			p.all.Go(func() { c.carry(near, far) })
			p.all.Go(func() { c.carry(far, near) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		conns := p.conns
		p.mu.Unlock()
		for _, c := range conns {
			_ = c.near.Close()
			_ = c.far.Close()
		}
		p.all.Wait()
	})
	return p
}

// carry copies until an end closes; once dead it takes and drops.
func (c *crossing) carry(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !c.dead.Load() {
			if n > 0 {
				if _, err := to.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				_ = to.Close()
			}
		}
		if err != nil {
			return
		}
	}
}

// die lets every connection of the present go dead, and returns how many there are.
func (p *path) die() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.dead.Store(true)
	}
	return len(p.conns)
}

func (p *path) url() string { return "http://" + p.Addr().String() }

// G21: a node slept, and its idle connections to the provider are dead without a
// sign. The first request after it goes over a new one, and is answered.
func TestCase_G21_AfterASleepNoRequestGoesOverADeadIdleConnection(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	p := newPath(t, s.URL)
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", p.url(), 1))}, []object{model("m", "n/p=x")},
		object{"edge": object{"heartbeat": object{"interval_ms": 1000, "timeout_ms": 5000}}}), "n")
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)

	node := r.nodes["n"]
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGSTOP))
	require.Equal(t, 1, p.die())
	r.connected() // The Edge has given the node up: it has slept for the heartbeat timeout.
	thawed := time.Now()
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGCONT))
	node.await(t, "the machine woke or its network changed", "")
	r.connected("n")
	back := time.Since(thawed)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a := r.ask(ctx, chatBody("m", false, ""))
	require.NoError(t, a.err)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, 1, p.die()-1, "a new connection")
	t.Logf("connected %v after the thaw", back.Round(time.Millisecond))
}
