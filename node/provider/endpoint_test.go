package provider

import (
	"io"
	"net/http"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Lemonade has its reranker under another name than everyone else.
func TestRerankIsAskedForWhereTheTypeHasIt(t *testing.T) {
	asked := make(chan string, 1)
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		_, _ = io.WriteString(w, "{}")
	})
	for kind, path := range map[string]string{"vllm": "/v1/rerank", "llamacpp": "/v1/rerank", "openai": "/v1/rerank", "lemonade": "/v1/reranking"} {
		s := newSet(t, clockwork.NewRealClock(), described(kind, stub.URL))
		a := &answer{t: t}
		require.NoError(t, s.Run(t.Context(), beginAt("/v1/rerank", "{}"), []byte("{}"), a))
		assert.Equal(t, path, <-asked, kind)
	}
}

// The Edge and the node filter by the same list.
func TestResponseHeadersOfTheClientsKitsPass(t *testing.T) {
	passing := map[string]string{
		"Retry-After": "2", "Retry-After-Ms": "1500", "X-Should-Retry": "false", "Openai-Processing-Ms": "9", "X-Ratelimit-Remaining-Tokens": "1",
		"Anthropic-Ratelimit-Requests-Remaining": "3",
	}
	stub := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range passing {
			w.Header().Set(name, value)
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Request-Id", "the provider's")
		w.Header().Set("Anthropic-Organization-Id", "x")
		_, _ = io.WriteString(w, "{}")
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL))
	a := &answer{t: t}
	require.NoError(t, s.Run(t.Context(), begin("{}"), []byte("{}"), a))
	got := map[string]string{}
	for _, f := range a.head.GetHeaders() {
		if f.GetName() != "Content-Type" {
			got[f.GetName()] = f.GetValue()
		}
	}
	assert.Equal(t, passing, got)
}
