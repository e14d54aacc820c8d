package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/llamacpp"
)

// behindLlamacpp starts an Edge and a node before a server with llama-server's
// quirks, which runs as many requests at once as the configuration says.
func behindLlamacpp(t *testing.T, capacity int, o llamacpp.Options) (*rig, *llamacpp.Server) {
	t.Helper()
	o.Slots = capacity
	o.KeepAlive = time.Minute // a machine that stands still for 5 seconds is another test's subject
	s, err := llamacpp.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p := provider("llama", s.URL(), capacity, object{"type": "llamacpp"})
	return site(t, edgeFile([]object{nodeConfig("n", p)}, []object{model("m", "n/llama=count")}), "n"), s
}

// to is a chat request whose last word is start.
func to(start int, stream bool) string {
	return fmt.Sprintf(`{"model":"m","stream":%t,"messages":[{"role":"user","content":"go %d"}]}`, stream, start)
}

func requireCountedFrom97(t *testing.T, a answer, stream bool) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, http.StatusOK, a.status, a.body)
	if !stream {
		require.Contains(t, a.body, `"content":" 98 99 100"`)
		return
	}
	for _, piece := range []string{`"content":" 98"`, `"content":" 99"`, `"content":" 100"`, `"finish_reason":"stop"`} {
		require.Contains(t, a.body, piece)
	}
	require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
}

// The server closes its socket after each stream while promising to keep it: a
// request that went out on such a connection would be lost, since nothing is
// ever sent twice. Plain answers keep their promise, and are worth reusing.
func TestLlamacpp_TwoHundredInARow(t *testing.T) {
	r, s := behindLlamacpp(t, 1, llamacpp.Options{})
	streams := 0
	for i := range 200 {
		stream := i%3 == 2
		if stream {
			streams++
		}
		requireCountedFrom97(t, r.ask(t.Context(), to(97, stream)), stream)
	}
	r.quiet()
	seen, conns := s.Requests(), s.Conns()
	require.Len(t, seen, 200, "each reached the server once")
	for _, q := range seen {
		if q.Streamed {
			assert.Equal(t, conns[q.Conn-1].Requests, q.Place, "nothing is sent after a stream on its connection")
		}
	}
	// Each stream ends one connection. An idle one may end by itself between two
	// requests on a machine that stands still, hence the few more.
	assert.LessOrEqual(t, len(conns), streams+10, "plain answers leave a connection that is used again")
	assert.Equal(t, 1, s.Peak().Running)
}

// What is over the capacity waits at IOP; the server, which would take it
// without a word and without order, never has anything to queue.
func TestLlamacpp_TheQueueIsAtIOP(t *testing.T) {
	const capacity, requests = 3, 40
	r, s := behindLlamacpp(t, capacity, llamacpp.Options{Pace: 2 * time.Millisecond})
	var all sync.WaitGroup
	answers := make([]answer, requests)
	for i := range requests {
		all.Go(func() { answers[i] = r.ask(t.Context(), to(97, i%2 == 0)) })
	}
	all.Wait()
	for i, a := range answers {
		requireCountedFrom97(t, a, i%2 == 0)
	}
	r.quiet()
	assert.Len(t, s.Requests(), requests)
	assert.Equal(t, capacity, s.Peak().Running, "the capacity is used to the full")
	assert.Zero(t, s.Peak().Queued)
}

// A client that leaves frees the server's slot, which notices a plain answer's
// client only at its next poll; the next request meets an empty server.
func TestLlamacpp_CancelFreesTheSlot(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			r, s := behindLlamacpp(t, 1, llamacpp.Options{Pace: time.Millisecond, Context: 1 << 20})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			left := r.background(ctx, to(500, stream))
			require.Eventually(t, func() bool { return s.Running() == 1 }, 20*time.Second, time.Millisecond)
			next := r.background(t.Context(), to(97, stream))
			r.waiting(1)
			leave()
			require.ErrorIs(t, (<-left).err, context.Canceled)
			requireCountedFrom97(t, <-next, stream)
			r.quiet()
			seen := s.Requests()
			require.Len(t, seen, 2)
			assert.True(t, seen[0].Gone, "the server was told")
			assert.False(t, seen[1].Start.Before(seen[0].End), "the two do not overlap")
			assert.Equal(t, llamacpp.Peak{Running: 1, Connections: s.Peak().Connections}, s.Peak())
		})
	}
}

// The server's own refusals, whose codes are numbers, and a cut inside a stream.
func TestLlamacpp_FailuresAreToldAsTheyAre(t *testing.T) {
	r, s := behindLlamacpp(t, 1, llamacpp.Options{Pace: time.Millisecond, Context: 64})
	long := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("word ", 20)+"5")
	a := r.ask(t.Context(), long)
	require.NoError(t, a.err)
	assert.Equal(t, http.StatusBadRequest, a.status)
	assert.JSONEq(t, `{"error":{"code":400,"message":"request (105 tokens) exceeds the available context size (64 tokens), try increasing it",`+
		`"type":"exceed_context_size_error","n_prompt_tokens":105,"n_ctx":64}}`, a.body)
	assert.Empty(t, a.header.Values("Access-Control-Allow-Origin"), "the empty CORS field is not passed on")

	s.SetLoading(true)
	a = r.ask(t.Context(), to(97, true))
	require.NoError(t, a.err)
	assert.Equal(t, http.StatusServiceUnavailable, a.status)
	assert.JSONEq(t, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, a.body)
	s.SetLoading(false)

	requireCountedFrom97(t, r.ask(t.Context(), to(97, true)), true)
	r.quiet()
}

func TestLlamacpp_CutInsideAStream(t *testing.T) {
	r, s := behindLlamacpp(t, 1, llamacpp.Options{Pace: time.Millisecond, Context: 1 << 20})
	cut := r.background(t.Context(), to(500, true))
	require.Eventually(t, func() bool {
		running := r.snapshot().GetRequests()
		return len(running) == 1 && running[0].GetState() == "streaming" // bytes have reached the Edge
	}, 20*time.Second, 5*time.Millisecond)
	s.Cut()
	a := <-cut
	require.NoError(t, a.err)
	assert.Equal(t, http.StatusOK, a.status)
	assert.Contains(t, a.body, `"code":"provider_disconnected"`)
	assert.NotContains(t, a.body, "[DONE]")
	requireCountedFrom97(t, r.ask(t.Context(), to(97, false)), false)
	r.quiet()
}
