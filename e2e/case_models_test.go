//go:build !windows

package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

// listed are the ids of /v1/models, in its order.
func listed(t *testing.T, r *rig) (ids []string) {
	t.Helper()
	a := r.fetch(t.Context(), http.MethodGet, "/v1/models", nil)
	require.NoError(t, a.err)
	require.Equal(t, http.StatusOK, a.status)
	var list struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

// F01 to F05: every name that can be called is listed once, routes too, and every listed one can be called, by its exact spelling; the provider gets its
// own name for it, and the reply has the client's, streamed or not.
func TestCase_F01_F02_F03_F04_F05_NamesAndWhatTheyStandFor(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		if strings.Contains(string(body), `"stream":true`) {
			_ = sse(w, chunk(target, target))
			_ = sse(w, lastChunk(target))
			_ = sse(w, "[DONE]")
			return
		}
		complete(w, target, target)
	})
	targets := map[string]string{
		"gpt-4": "Qwen/Qwen3-32B", "org/name": "/models/name.gguf", "name:7b": "name", "Name:7b": "another-name", "fast": "Qwen/Qwen3-32B",
	}
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))},
		[]object{model("gpt-4", "n/p=Qwen/Qwen3-32B"), model("org/name", "n/p=/models/name.gguf"), model("name:7b", "n/p=name"), model("Name:7b", "n/p=another-name")},
		object{"openai": object{"model_routes": []object{{"model": "fast", "adapter": "p", "target": "Qwen/Qwen3-32B"}}}}), "n")
	ids := listed(t, r)
	require.ElementsMatch(t, []string{"gpt-4", "org/name", "name:7b", "Name:7b", "fast"}, ids)
	for _, id := range ids {
		for _, stream := range []bool{false, true} {
			a := r.ask(t.Context(), chatBody(id, stream, ""))
			require.NoError(t, a.err)
			require.Equal(t, http.StatusOK, a.status, id)
			require.Contains(t, a.body, `"content":"`+targets[id]+`"`, "the provider's own name")
			require.Contains(t, a.body, `"model":"`+id+`"`)
			require.NotContains(t, a.body, `"model":"`+targets[id]+`"`)
		}
		one := r.fetch(t.Context(), http.MethodGet, "/v1/models/"+id, nil)
		require.Equal(t, http.StatusOK, one.status, id)
		require.Contains(t, one.body, `"id":"`+id+`"`)
	}
	plain, escaped := r.fetch(t.Context(), http.MethodGet, "/v1/models/org/name", nil), r.fetch(t.Context(), http.MethodGet, "/v1/models/org%2Fname", nil)
	require.Equal(t, http.StatusOK, escaped.status)
	require.Equal(t, plain.body, escaped.body)
	for _, id := range []string{"GPT-4", "NAME:7B", "Fast", "Qwen/Qwen3-32B", "name"} {
		a := r.ask(t.Context(), chatBody(id, false, ""))
		require.Equal(t, http.StatusNotFound, a.status, id)
		require.Equal(t, "model_not_found", a.code(t))
	}
	r.quiet()
}

// F07: a model on two machines is listed once, and both serve it.
func TestCase_F07_OneModelOnTwoMachines(t *testing.T) {
	g := newGate(t)
	hold := func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "ok")
		}
	}
	one, two := newStub(t, hold), newStub(t, hold)
	r := site(t, edgeFile([]object{nodeConfig("a", provider("p", one.URL, 1)), nodeConfig("b", provider("p", two.URL, 1))},
		[]object{model("m", "a/p=x", "b/p=y")}), "a", "b")
	require.Equal(t, []string{"m"}, listed(t, r))
	var done []<-chan answer
	for range 2 {
		done = append(done, r.background(t.Context(), chatBody("m", false, "")))
	}
	r.running(2)
	g.release()
	var nodes []string
	for _, d := range done {
		a := <-d
		require.Equal(t, http.StatusOK, a.status)
		nodes = append(nodes, a.header.Get("X-Iop-Node"))
	}
	require.ElementsMatch(t, []string{"a", "b"}, nodes)
	r.quiet()
}

// F08: the list comes from the configuration: it waits for no machine, be one frozen with a request to it under way.
func TestCase_F08_TheListWaitsForNobody(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "ok")
		}
	})
	r := site(t, edgeFile([]object{nodeConfig("a", provider("p", s.URL, 1)), nodeConfig("off", provider("p", s.URL, 1))},
		[]object{model("m", "a/p=x"), model("away", "off/p=x")}), "a")
	pending := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	require.NoError(t, r.nodes["a"].cmd.Process.Signal(syscall.SIGSTOP))
	fastest := time.Hour
	for range 10 {
		began := time.Now()
		require.Equal(t, []string{"m", "away"}, listed(t, r))
		fastest = min(fastest, time.Since(began))
	}
	require.Less(t, fastest, 300*time.Millisecond)
	require.NoError(t, r.nodes["a"].cmd.Process.Signal(syscall.SIGCONT))
	g.release()
	require.Equal(t, http.StatusOK, (<-pending).status)
	r.quiet()
}

// F13: the official client reads the list and each entry of it.
func TestCase_F13_TheOfficialClientReadsTheList(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "ok") })
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=x"), model("org/name", "n/p=y")}), "n")
	client := openai.NewClient(option.WithBaseURL(r.url+"/v1"), option.WithAPIKey(apiKey), option.WithHTTPClient(r.client))
	page, err := client.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, page.Data, 2)
	for _, m := range page.Data {
		require.NotEmpty(t, m.ID)
		require.EqualValues(t, "model", m.Object)
		require.Positive(t, m.Created)
		require.NotEmpty(t, m.OwnedBy)
		require.True(t, m.JSON.Created.Valid() && m.JSON.OwnedBy.Valid() && m.JSON.Object.Valid())
		one, err := client.Models.Get(t.Context(), m.ID)
		require.NoError(t, err)
		require.Equal(t, m.ID, one.ID)
		require.Equal(t, m.Created, one.Created)
	}
}
