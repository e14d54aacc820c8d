package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func readAll(t *testing.T, res *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

// endless streams until its client is gone.
func endless(t *testing.T) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for sse(w, chunk(target, "more ")) == nil {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

func oneSlot(t *testing.T, s *stub) *rig {
	return start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")}), "n")
}

// B01: the client leaves while the answer streams.
func TestCase_B01_AbortWhileStreaming(t *testing.T) {
	s := newStub(t, endless(t))
	r := oneSlot(t, s)
	ctx, leave := context.WithCancel(t.Context())
	res, err := r.post(ctx, chatBody("m", true, ""))
	require.NoError(t, err)
	lines := bufio.NewScanner(res.Body)
	for range 6 {
		require.True(t, lines.Scan())
	}
	leave()
	<-s.goneNews
	res.Body.Close()
	r.quiet()
	current, _, total, gone := s.counts()
	require.Equal(t, []int{0, 1, 1}, []int{current, total, gone})
}

// B02 and B03: the client leaves before the first byte, of a stream or not.
func TestCase_B02_B03_AbortBeforeTheFirstByte(t *testing.T) {
	for _, stream := range []bool{false, true} {
		g := newGate(t)
		s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) { g.wait(r) })
		r := oneSlot(t, s)
		ctx, leave := context.WithCancel(t.Context())
		done := r.background(ctx, chatBody("m", stream, ""))
		r.running(1)
		require.Eventually(t, func() bool { _, _, total, _ := s.counts(); return total == 1 }, 10*time.Second, time.Millisecond)
		leave()
		<-s.goneNews
		require.ErrorIs(t, (<-done).err, context.Canceled)
		r.quiet()
	}
}

// B04: a client that leaves while it waits gives its place up at once, and its
// request never reaches the provider.
func TestCase_B04_AbortWhileQueued(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	r := oneSlot(t, s)
	first := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	ctx, leave := context.WithCancel(t.Context())
	second := r.background(ctx, chatBody("m", true, ""))
	r.waiting(1)
	leave()
	r.waiting(0)
	require.ErrorIs(t, (<-second).err, context.Canceled)
	g.release()
	require.Equal(t, http.StatusOK, (<-first).status)
	r.quiet()
	_, _, total, _ := s.counts()
	require.Equal(t, 1, total)
}

// B06, and abort-and-resend: 500 streams broken off one after another at capacity
// 1, each followed at once by the next. The provider never runs two, and the last
// one is served.
func TestCase_B06_AbortAndResend500Times(t *testing.T) {
	s := newStub(t, endless(t))
	r := oneSlot(t, s)
	for i := range 500 {
		ctx, leave := context.WithCancel(t.Context())
		res, err := r.post(ctx, chatBody("m", true, ""))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode, "request %d", i)
		_, err = res.Body.Read(make([]byte, 16))
		require.NoError(t, err)
		leave()
		res.Body.Close()
	}
	r.quiet()
	_, peak, total, _ := s.counts()
	require.Equal(t, 1, peak)
	require.Equal(t, 500, total)
}
