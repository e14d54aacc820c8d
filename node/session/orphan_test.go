package session

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/proto/framecodec"
)

// register runs a session of the given providers until it is ready.
func (e *puppetEdge) register(set *provider.Set, described *runtimev1.Provider, token string) *running {
	e.t.Helper()
	r, _ := e.start(nil, func(c *Config) { c.Providers = set })
	m := accept()
	m.GetAccepted().GenerationToken = token
	m.GetAccepted().Providers = &runtimev1.ProviderSet{Providers: []*runtimev1.Provider{described}}
	r.send(m)
	await(e, r.ready)
	return r
}

// workOf returns a work stream of the session with that token. A session that is
// being lost may open streams to the last.
func (e *puppetEdge) workOf(token string) *edgeWork {
	e.t.Helper()
	for {
		if w := await(e, e.works); w.RequestHeader().Get(framecodec.HeaderGenerationToken) == token {
			return w
		}
	}
}

// The session is lost while a provider of capacity 1 answers. What runs is ended
// in the provider's own way, gets a bounded moment before the node registers
// again, and what still runs then keeps its place in the gate: the next session's
// request waits for it, and is served.
func TestS14_WhatRunsOnAfterItsSessionKeepsItsPlaceInTheGate(t *testing.T) {
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		cancel  string
		letsGo  bool // within the moment
		hangsUp bool // the provider sees its client go
	}{{"forward", true, true}, {"forward", false, true}, {"drain", true, false}, {"drain", false, false}} {
		name := c.cancel + ", goes on"
		if c.letsGo {
			name = c.cancel + ", ends in time"
		}
		t.Run(name, func(t *testing.T) {
			e, server := newPuppetEdge(t, false)
			asked, gone, finish := make(chan struct{}, 4), make(chan struct{}, 4), make(chan struct{}, 4)
			stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = http.NewResponseController(w).Flush()
				asked <- struct{}{}
				select {
				case <-r.Context().Done():
					gone <- struct{}{}
					<-finish // an engine that does not stop at once
				case <-finish:
				}
			}))
			defer stub.Close()
			// Of a clock of its own: the grace of the provider outlasts the moment.
			set := provider.NewSet(provider.Config{Clock: clockwork.NewFakeClock(), Log: slog.New(slog.DiscardHandler)})
			defer set.Close(cut)
			p := &runtimev1.Provider{Id: "vllm", Type: "vllm", BaseUrl: stub.URL, Capacity: 1, Cancel: c.cancel, CancelGraceMs: 60_000, GateWaitMs: 2000}

			first := e.register(set, p, "first-generation")
			w := e.workOf("first-generation")
			require.NoError(t, w.Send(request(1, "x", true)))
			await(e, asked)
			server.CloseClientConnections()
			if c.hangsUp {
				await(e, gone)
			}
			require.Empty(t, first.done, "it waits for what runs")
			if c.letsGo {
				finish <- struct{}{}
			} else {
				for len(first.done) == 0 && e.ctx.Err() == nil { // the wait may not have begun yet
					e.clock.Advance(lingerLimit)
				}
			}
			require.Error(t, await(e, first.done))
			orphans := 1
			if c.letsGo {
				orphans = 0
			}
			assert.Equal(t, orphans, set.Usage()[0].InUse)

			e.register(set, p, "second-generation")
			w = e.workOf("second-generation")
			require.NoError(t, w.Send(request(1, "x", true)))
			if !c.letsGo {
				for set.Usage()[0].Waiting == 0 && e.ctx.Err() == nil {
					runtime.Gosched()
				}
				assert.Empty(t, asked, "opened beside the orphan")
				finish <- struct{}{}
			}
			await(e, asked)
			finish <- struct{}{}
			for {
				f, err := w.Receive()
				require.NoError(t, err)
				require.Nil(t, f.Failure)
				if f.End {
					break
				}
			}
		})
	}
}
