package discover_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/cmd/iop/discover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers maps a path to a body; an empty Server header is left out.
type answers struct {
	header map[string]string
	paths  map[string]string
	// other is the answer to any other path, with status 200; "" = 404.
	other string
}

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	body, ok := a.paths[r.URL.Path]
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "discovery only reads", http.StatusMethodNotAllowed)
	case ok:
		fmt.Fprint(w, body)
	case a.other != "":
		fmt.Fprint(w, a.other)
	default:
		http.NotFound(w, r)
	}
}

// The stubs answer what the real servers do, and what they imitate.
var stubs = map[discover.Kind]answers{
	discover.Ollama: {paths: map[string]string{
		"/":            "Ollama is running",
		"/api/version": `{"version":"0.6.5"}`,
		"/api/tags": `{"models":[{"name":"qwen3:8b","details":{"family":"qwen3"}},
			{"name":"nomic:latest","details":{"family":"nomic-bert"}},{"name":"llama3.2:1b","details":{"family":"llama"}}]}`,
		"/v1/models": `{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}`,
	}},
	discover.LlamaCpp: {
		header: map[string]string{"Server": "llama.cpp"},
		paths: map[string]string{
			"/props":       `{"total_slots":4,"build_info":"b6000-abc","model_path":"/m.gguf"}`,
			"/v1/models":   `{"object":"list","models":[{"name":"x"}],"data":[{"id":"gpt-oss-20b","object":"model","owned_by":"llamacpp"}]}`,
			"/api/tags":    `{"models":[{"name":"gpt-oss-20b"}]}`,
			"/api/version": `{"version":"0.0.0"}`,
			"/health":      `{"status":"ok"}`,
		},
	},
	discover.VLLM: {
		header: map[string]string{"Server": "uvicorn"},
		paths: map[string]string{
			"/version":   `{"version":"0.11.0"}`,
			"/v1/models": `{"object":"list","data":[{"id":"Qwen/Qwen3-32B","object":"model","owned_by":"vllm","max_model_len":32768}]}`,
			"/health":    "",
		},
	},
	discover.LMStudio: {
		paths: map[string]string{
			"/api/v0/models": `{"object":"list","data":[{"id":"text-embedding-x","type":"embeddings","publisher":"p","compatibility_type":"gguf","state":"not-loaded"},
				{"id":"qwen2.5-7b","type":"llm","publisher":"q","compatibility_type":"mlx","state":"loaded"}]}`,
			"/v1/models": `{"object":"list","data":[{"id":"qwen2.5-7b","object":"model","owned_by":"organization_owner"}]}`,
		},
		other: `{"error":"Unexpected endpoint or method."}`, // With 200, as LM Studio does.
	},
	discover.Lemonade: {paths: map[string]string{
		"/api/v1/health": `{"status":"ok","model_loaded":null,"version":"9.1.0","all_models_loaded":[]}`,
		"/api/v1/models": `{"object":"list","data":[{"id":"Qwen3-0.6B-GGUF","owned_by":"lemonade","recipe":"llamacpp"}]}`,
		"/v1/models":     `{"object":"list","data":[{"id":"Qwen3-0.6B-GGUF","owned_by":"lemonade"}]}`,
		"/api/tags":      `{"models":[]}`,
		"/api/version":   `{"version":"9.1.0"}`,
	}},
	discover.MLX: {
		header: map[string]string{"Server": "BaseHTTP/0.6 Python/3.12.1"},
		paths: map[string]string{
			"/v1/models": `{"object":"list","data":[{"id":"mlx-community/Qwen3-4B-4bit","object":"model","created":1}]}`,
			"/health":    `{"status": "ok"}`,
		},
	},
}

// serve starts a stub and returns its host:port.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestU02_EachKindIsKnownByWhatItAnswers(t *testing.T) {
	want := map[discover.Kind]discover.Server{
		discover.Ollama: {Version: "0.6.5", Models: []discover.Model{{"qwen3:8b", true}, {"nomic:latest", false}, {"llama3.2:1b", true}}},
		discover.LlamaCpp: {Version: "b6000-abc", Capacity: 4,
			Models: []discover.Model{{"gpt-oss-20b", true}}},
		discover.VLLM:     {Version: "0.11.0", Models: []discover.Model{{"Qwen/Qwen3-32B", true}}},
		discover.LMStudio: {Models: []discover.Model{{"text-embedding-x", false}, {"qwen2.5-7b", true}}},
		discover.Lemonade: {Version: "9.1.0", Models: []discover.Model{{"Qwen3-0.6B-GGUF", true}}},
		discover.MLX:      {Models: []discover.Model{{"mlx-community/Qwen3-4B-4bit", true}}},
	}
	require.Len(t, want, len(stubs))
	for kind, stub := range stubs {
		t.Run(string(kind), func(t *testing.T) {
			address := serve(t, stub)
			expected := want[kind]
			expected.Kind, expected.Address, expected.BaseURL = kind, address, "http://"+address
			found := discover.Find(t.Context(), []string{address})
			require.Equal(t, discover.Findings{Servers: []discover.Server{expected}}, found)

			given, err := discover.Inspect(t.Context(), kind, "http://"+address+"/v1/")
			require.NoError(t, err)
			require.Equal(t, expected, given)
		})
	}
}

func TestU02_FindingsKeepTheOrderOfTheAddressesAndLeaveOutTheSilent(t *testing.T) {
	// A listener that accepts and says nothing, and a port where nobody listens.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())

	vllm, ollama := serve(t, stubs[discover.VLLM]), serve(t, stubs[discover.Ollama])
	found := discover.Find(t.Context(), []string{vllm, silent.Addr().String(), gone.Addr().String(), ollama})
	require.Len(t, found.Servers, 2)
	require.Equal(t, discover.VLLM, found.Servers[0].Kind)
	require.Equal(t, discover.Ollama, found.Servers[1].Kind)
	require.Empty(t, found.Unknown)
	require.Empty(t, found.Edges)
}

func TestU02_AnEdgeIsSkippedWhateverItAnswers(t *testing.T) {
	marked := stubs[discover.VLLM]
	marked.header = map[string]string{discover.EdgeHeader: "home"}
	for name, stub := range map[string]answers{
		"with models":      marked,
		"asking for a key": {header: marked.header, other: `{"error":{"code":"invalid_api_key"}}`},
		"by its models":    {paths: map[string]string{"/v1/models": `{"object":"list","data":[{"id":"m","owned_by":"iop"}]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, stub)
			require.Equal(t, discover.Findings{Edges: []string{address}}, discover.Find(t.Context(), []string{address}))
			_, err := discover.Inspect(t.Context(), discover.OpenAI, "http://"+address)
			require.ErrorContains(t, err, "IOP Edge")
		})
	}
}

func TestU02_AnUnmarkedServerIsNamedUnknownNotGuessed(t *testing.T) {
	proxy := serve(t, answers{paths: map[string]string{"/v1/models": `{"object":"list","data":[{"id":"gpt-4o","owned_by":"openai"}]}`}})
	website := serve(t, answers{other: "<html>hello</html>"})
	require.Equal(t, discover.Findings{Unknown: []string{proxy}}, discover.Find(t.Context(), []string{proxy, website}))

	given, err := discover.Inspect(t.Context(), discover.OpenAI, "http://"+proxy)
	require.NoError(t, err)
	require.Equal(t, []discover.Model{{"gpt-4o", true}}, given.Models)
}

func TestU02_NoRedirectIsFollowed(t *testing.T) {
	var visited atomic.Bool
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited.Store(true) }))
	address := serve(t, http.RedirectHandler("http://"+elsewhere+"/v1/models", http.StatusFound))
	require.Empty(t, discover.Find(t.Context(), []string{address}))
	require.False(t, visited.Load())
}

func TestU02_InspectSaysWhatIsWrong(t *testing.T) {
	empty := serve(t, answers{paths: map[string]string{"/v1/models": `{"object":"list","data":[]}`}})
	broken := serve(t, answers{other: "<html>"})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	for name, c := range map[string]struct {
		kind discover.Kind
		url  string
		say  string
	}{
		"unknown kind":   {"tgi", "http://127.0.0.1:1", `unknown provider type "tgi"; one of lemonade, llamacpp`},
		"no scheme":      {discover.VLLM, "127.0.0.1:8000", "expected http://host:port"},
		"other scheme":   {discover.VLLM, "ftp://127.0.0.1:8000", "expected http://host:port"},
		"password":       {discover.VLLM, "http://me:secret@127.0.0.1:8000", "password"},
		"query":          {discover.VLLM, "http://127.0.0.1:8000?a=1", "query"},
		"nobody there":   {discover.VLLM, "http://" + gone.Addr().String(), "connection refused"},
		"no models":      {discover.OpenAI, "http://" + empty, "has no models"},
		"something else": {discover.Ollama, "http://" + broken, "not the JSON that was expected"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := discover.Inspect(context.Background(), c.kind, c.url)
			require.ErrorContains(t, err, c.say)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}
