package provider

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

func beginAt(path, body string) *runtimev1.RequestBegin {
	b := begin(body)
	b.Path = path
	return b
}

// What changes or lists models is never asked for, and the whole native API only
// of the type that has it, whatever an Edge says.
func TestNativePathsAreOllamasAlone(t *testing.T) {
	var asked atomic.Value
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path)
		_, _ = io.WriteString(w, "{}")
	})
	for _, suffix := range []string{"", "/", "/v1"} {
		s := newSet(t, clockwork.NewRealClock(), described("ollama", stub.URL+suffix))
		for _, path := range []string{"/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/v1/chat/completions"} {
			a := &answer{t: t}
			require.NoError(t, s.Run(t.Context(), beginAt(path, "{}"), []byte("{}"), a))
			assert.Equal(t, "{}", a.whole())
			assert.Equal(t, path, asked.Load(), "base_url ending in %q", suffix)
		}
	}
	asked.Store("")
	for kind, forbidden := range map[string][]string{
		"ollama": {"/api/pull", "/api/push", "/api/create", "/api/delete", "/api/copy", "/api/blobs/sha256:0", "/api/tags", "/api/show", "/api/ps", "/api/chat/"},
		"openai": {"/api/chat", "/api/generate", "/api/embed", "/api/embeddings"},
		"vllm":   {"/api/chat"}, "llamacpp": {"/api/chat"}, "lemonade": {"/api/chat", "/api/generate"}, "lmstudio": {"/api/chat"}, "mlx": {"/api/chat"},
		"simulator": {"/api/chat", "/api/generate"},
	} {
		s := newSet(t, clockwork.NewRealClock(), described(kind, stub.URL))
		for _, path := range forbidden {
			a := &answer{t: t}
			require.NoError(t, s.Run(t.Context(), beginAt(path, "{}"), []byte("{}"), a))
			assert.Equal(t, neverOpened, a.code(), "%s at a provider of type %s", path, kind)
		}
	}
	assert.Empty(t, asked.Load())
}

func TestCase_A16_EachLineOfAnOllamaStreamIsAFrameOfItsOwn(t *testing.T) {
	next := make(chan struct{})
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for i := range 3 {
			<-next
			fmt.Fprintf(w, "{\"n\":%d}\n", i)
			_ = http.NewResponseController(w).Flush()
		}
		<-next
	})
	s := newSet(t, clockwork.NewRealClock(), described("ollama", stub.URL))
	arrived := make(chan string, 4)
	a := &answer{t: t, hook: func(f *Frame) error {
		arrived <- string(f.Body)
		return nil
	}}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), beginAt("/api/chat", "{}"), []byte("{}"), a) }()
	for i := range 3 {
		next <- struct{}{}
		assert.Equal(t, fmt.Sprintf("{\"n\":%d}\n", i), await(t, arrived, "a line, before the next one is written"))
	}
	next <- struct{}{}
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n", a.whole())
	assert.Equal(t, "application/x-ndjson", a.header("Content-Type"))
}

// The head of a stream of lines goes alone after a second, like that of events.
func TestHeadOfASilentOllamaStreamGoesAlone(t *testing.T) {
	clock := clockwork.NewFakeClock()
	next := make(chan struct{})
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_ = http.NewResponseController(w).Flush()
		<-next
		_, _ = io.WriteString(w, "{\"done\":true}\n")
	})
	s := newSet(t, clock, described("ollama", stub.URL))
	frames := make(chan Frame, 4)
	a := &answer{t: t, hook: func(f *Frame) error { frames <- *f; return nil }}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), beginAt("/api/generate", "{}"), []byte("{}"), a) }()
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(headHold)
	f := await(t, frames, "the head")
	assert.NotNil(t, f.Head)
	assert.Empty(t, f.Body)
	close(next)
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, "{\"done\":true}\n", a.whole())
}

func TestCase_B01_CancelOfAnOllamaStreamHoldsTheSlotToTheEnd(t *testing.T) {
	stub := newStuckServer(t, strings.Replace(eventHead, "text/event-stream", "application/x-ndjson", 1)+"9\r\n{\"a\":\"b\"}\r\n")
	s := newSet(t, clockwork.NewFakeClock(), described("ollama", stub.url))
	ctx, cancel := context.WithCancel(t.Context())
	a, done := start(t, ctx, s, beginAt("/api/chat", "{}"), "{}")
	await(t, stub.asked, "the request")
	cancel()
	await(t, stub.gone, "the half-close")
	assert.Equal(t, 1, s.Usage()[0].InUse, "the slot is held until the provider has hung up")
	close(stub.finish)
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, cancelled, a.code())
}
