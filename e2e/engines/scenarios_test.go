//go:build engines

package engines

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
)

// passedScenarios counts the entries of the matrix that ran and passed.
var passedScenarios atomic.Int64

// TestClients runs the matrix, each client against each server, entry by entry.
func TestClients(t *testing.T) {
	t.Cleanup(func() { assert.NoError(t, stopApplications()) })
	for _, r := range matrix {
		c, known := clients[r.client]
		require.True(t, known, "no client %s", r.client)
		for _, name := range r.scenarios {
			check, known := scenarios[name]
			require.True(t, known, "no scenario %s", name)
			t.Run(strings.ReplaceAll(r.client, "/", ":")+"/"+r.server+"/"+name, func(t *testing.T) {
				check(t, scene{client: c, name: name, served: servers[r.server]})
				requireFree(t)
				if !t.Failed() && !t.Skipped() {
					passedScenarios.Add(1)
				}
			})
		}
	}
}

// served is how a server of the matrix is asked through IOP.
type served struct {
	model string // of IOP's catalogue
	// narrow and brief lead to the same slot, with room for one waiter and with a
	// short wait.
	narrow, brief string
	// endless is a start whose answer goes on, and calling one that calls a tool.
	endless, calling int
}

var servers = map[string]served{
	onOllama:   {model: modelBig, narrow: modelNarrow, brief: modelBrief, endless: endless},
	onLlamacpp: {model: modelLlama, narrow: modelLlamaNarrow, brief: modelLlamaBrief, endless: 501, calling: 990},
	onFaulty:   {model: modelDropped},
}

// scene is one entry of the matrix as it runs.
type scene struct {
	client
	name string
	served
}

// play runs a scenario of the client, which need not have the entry's name.
func (s scene) play(t *testing.T, scenario string, a ask) seen {
	t.Helper()
	return s.playAt(t, running.viaIOP(), scenario, a, nil)
}

func (s scene) playAt(t *testing.T, at endpoint, scenario string, a ask, attempted func(int)) seen {
	t.Helper()
	if a.Model == "" {
		a.Model = s.model
	}
	got, err := s.run(ctx, at, scenario, a, attempted)
	require.NoError(t, err)
	return got
}

// scenarios is what the names of the matrix stand for.
var scenarios = map[string]func(*testing.T, scene){
	"chat":              counted,
	"auth token":        counted,
	"stream":            counted,
	"completions":       counted,
	"responses":         counted,
	"responses stream":  counted,
	"generate":          counted,
	"generate stream":   counted,
	"length":            cutShort,
	"abort":             brokenOff,
	"tools":             toolCalled,
	"tools stream":      toolCalled,
	"structured":        structured,
	"embeddings":        embedded,
	"embeddings float":  embedded,
	"count tokens":      tokensCounted,
	"models":            listed,
	"model":             oneListed,
	"unknown model":     unknownModel,
	"wrong key":         wrongKey,
	"tools refused":     toolsRefused,
	"responses refused": func(t *testing.T, s scene) { engineHasNone(t, s, "responses") },
	"messages refused":  func(t *testing.T, s scene) { engineHasNone(t, s, "chat") },
	"audio refused":     uploadRefused,
	"images refused":    notServed,
	"list":              listed,
	"ps":                runningListed,
	"show":              shown,
	"version":           versionTold,
	"native refused":    nativeRefused,
}

func requireAnswered(t *testing.T, got seen) {
	t.Helper()
	require.Nil(t, got.Error, "%+v", got.Error)
	require.Equal(t, []int{http.StatusOK}, got.statuses())
}

func counted(t *testing.T, s scene) {
	const start = 97
	prompt := marked(t, start)
	got := s.play(t, s.name, ask{Prompt: prompt})
	requireAnswered(t, got)
	assert.Equal(t, countmodel.Answer(start, 1000), got.Text)
	if s.name == "responses" || s.name == "responses stream" {
		assert.Equal(t, "completed", got.Finish)
	} else {
		assert.Equal(t, s.stop, got.Finish)
	}
	assert.Equal(t, []string{s.model}, got.Models, "the name it was asked by")
	assert.Positive(t, got.Input)
	assert.Equal(t, 4, got.Output, "three numbers and the end")
	switch s.name {
	case "stream", "responses stream", "generate stream":
		assert.GreaterOrEqual(t, got.Chunks, 3, "a piece for each number")
	}
	assert.Len(t, exchanges(prompt), 1)
}

func cutShort(t *testing.T, s scene) {
	const start, limit = 97, 2
	prompt := marked(t, start)
	for _, scenario := range []string{"chat", "stream"} {
		got := s.play(t, scenario, ask{Prompt: prompt, MaxTokens: limit})
		requireAnswered(t, got)
		assert.Equal(t, countmodel.Answer(start, limit), got.Text)
		assert.Equal(t, s.length, got.Finish)
		assert.Equal(t, limit, got.Output)
	}
	assert.Len(t, exchanges(prompt), 2)
}

func brokenOff(t *testing.T, s scene) {
	const pieces = 3
	prompt := marked(t, s.endless)
	got := s.play(t, "abort", ask{Prompt: prompt, AbortAfter: pieces})
	require.Nil(t, got.Error, "%+v", got.Error)
	assert.True(t, got.Aborted)
	// A library may hand over what it had read already.
	assert.True(t, strings.HasPrefix(got.Text, countmodel.Answer(s.endless, pieces)), got.Text)
	require.Eventually(t, func() bool {
		at := exchanges(prompt)
		return len(at) == 1 && !at[0].Running()
	}, soon, tick, "the engine's connection must end, and there is no second request")
	e := exchanges(prompt)[0]
	require.False(t, e.ClientClosed.IsZero(), "the node must end the connection, not wait for the answer")
	assert.Less(t, e.End.Sub(e.ClientClosed), grace)
}

func toolCalled(t *testing.T, s scene) {
	prompt := marked(t, s.calling)
	got := s.play(t, s.name, ask{Prompt: prompt})
	requireAnswered(t, got)
	assert.Equal(t, s.tool, got.Finish)
	require.Len(t, got.Tools, 1)
	assert.Equal(t, "get_time", got.Tools[0].Name)
	assert.JSONEq(t, `{"zone":"utc"}`, string(got.Tools[0].Args))
	assert.Len(t, exchanges(prompt), 1)
}

func structured(t *testing.T, s scene) {
	prompt := marked(t, 97)
	got := s.play(t, s.name, ask{Prompt: prompt})
	requireAnswered(t, got)
	assert.Contains(t, string(got.Object), `"colour":"red"`)
	at := exchanges(prompt)
	require.Len(t, at, 1)
	assert.Contains(t, string(at[0].Request), `"json_schema"`, "the schema reaches the engine")
}

func embedded(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{Inputs: []string{marked(t, 97), marked(t, 98)}})
	requireAnswered(t, got)
	require.Len(t, got.Dims, 2)
	assert.Positive(t, got.Dims[0])
	assert.Equal(t, got.Dims[0], got.Dims[1])
	if got.Models != nil {
		assert.Equal(t, []string{s.model}, got.Models)
	}
	assert.Len(t, exchanges(marked(t, 98)), 1)
}

func tokensCounted(t *testing.T, s scene) {
	prompt := marked(t, 97)
	got := s.play(t, s.name, ask{Prompt: prompt})
	requireAnswered(t, got)
	assert.Positive(t, got.Input)
	assert.Len(t, exchanges(prompt), 1)
}

func listed(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{})
	requireAnswered(t, got)
	assert.Equal(t, catalogue(), got.IDs)
}

func oneListed(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{})
	requireAnswered(t, got)
	assert.Equal(t, []string{s.model}, got.IDs)
}

// runningListed: what runs is listed while it runs, and only then.
func runningListed(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{})
	requireAnswered(t, got)
	assert.Empty(t, got.IDs)
	release := s.occupy(t)
	got = s.play(t, s.name, ask{})
	requireAnswered(t, got)
	assert.Equal(t, []string{s.model}, got.IDs)
	release()
}

func shown(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{})
	requireAnswered(t, got)
	assert.Contains(t, string(got.Object), `"capabilities":[]`, "IOP knows none, and claims none")
	got = s.play(t, s.name, ask{Model: engineModel})
	require.NotNil(t, got.Error)
	assert.Equal(t, http.StatusNotFound, got.Error.Status)
}

func versionTold(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{})
	requireAnswered(t, got)
	assert.Regexp(t, `^0\.6\.5`, got.Text, "clients switch features by it")
}

// notServed: the type of the only candidate does not serve the endpoint.
func notServed(t *testing.T, s scene) {
	got := s.play(t, s.name, ask{Prompt: marked(t, 97), Retries: 2})
	message := requireRefused(t, s, got, refusal{
		Kind: s.invalid, Status: http.StatusBadRequest, Code: "endpoint_not_supported", Type: "invalid_request_error",
	}, marked(t, 97), 0)
	assert.Contains(t, message, "endpoint")
}

// uploadRefused: a file reaches the server, which has no model for it and says so.
func uploadRefused(t *testing.T, s scene) {
	before := len(running.llamaTap.Exchanges())
	got := s.play(t, s.name, ask{Retries: 2})
	require.NotNil(t, got.Error)
	assert.Equal(t, s.notFound, got.Error.Kind)
	assert.Equal(t, []int{http.StatusNotFound}, got.statuses())
	all := running.llamaTap.Exchanges()
	require.Len(t, all, before+1)
	e := all[before]
	assert.Equal(t, "/v1/audio/transcriptions", e.Path)
	assert.Contains(t, e.Header.Get("Content-Type"), "multipart/form-data")
	assert.Contains(t, string(e.Request), "RIFF")
	assert.NotContains(t, string(e.Request), s.model, "the served target stands in its place")
}

// nativeRefused: Ollama's own API leads to Ollama only.
func nativeRefused(t *testing.T, s scene) {
	prompt := marked(t, 97)
	got := s.play(t, "chat", ask{Prompt: prompt})
	message := requireRefused(t, s, got, refusal{Kind: s.invalid, Status: http.StatusBadRequest}, prompt, 0)
	assert.NotEmpty(t, message)
}

// requireRefused checks the error and that no engine heard of it, unless asked is the
// number of times it did.
func requireRefused(t *testing.T, s scene, got seen, want refusal, prompt string, asked int) string {
	t.Helper()
	require.NotNil(t, got.Error)
	e := *got.Error
	message := e.Message
	e.Message = ""
	if s.plain {
		want.Code, want.Type, e.Code, e.Type = "", "", "", ""
	}
	assert.Equal(t, want, e)
	assert.Equal(t, []int{want.Status}, got.statuses(), "asked once")
	assert.Len(t, exchanges(prompt), asked)
	return message
}

func unknownModel(t *testing.T, s scene) {
	prompt := marked(t, 97)
	for _, scenario := range []string{"chat", "stream"} {
		// The name the engine knows is none of IOP's.
		got := s.play(t, scenario, ask{Model: engineModel, Prompt: prompt, Retries: 2})
		want := refusal{Kind: s.notFound, Status: http.StatusNotFound, Code: "model_not_found", Type: "invalid_request_error"}
		if s.anthropic {
			want.Type = "not_found_error"
		}
		message := requireRefused(t, s, got, want, prompt, 0)
		assert.Contains(t, message, engineModel)
	}
}

func wrongKey(t *testing.T, s scene) {
	at, prompt := running.viaIOP(), marked(t, 97)
	at.key = secret()
	for _, scenario := range []string{"chat", "stream"} {
		got := s.playAt(t, at, scenario, ask{Prompt: prompt, Retries: 2}, nil)
		want := refusal{Kind: s.unauthorized, Status: http.StatusUnauthorized, Code: "invalid_api_key", Type: "authentication_error"}
		message := requireRefused(t, s, got, want, prompt, 0)
		assert.NotContains(t, message, at.key, "a key must not come back")
	}
}

// toolsRefused: the model's template has no tools, and Ollama says so itself.
func toolsRefused(t *testing.T, s scene) {
	prompt := marked(t, 97)
	got := s.play(t, "tools", ask{Prompt: prompt})
	message := requireRefused(t, s, got, refusal{Kind: s.invalid, Status: http.StatusBadRequest, Type: "api_error"}, prompt, 1)
	assert.Contains(t, message, "does not support tools")
}

// engineHasNone: the engine has no such endpoint, and its own 404 passes.
func engineHasNone(t *testing.T, s scene, scenario string) {
	prompt := marked(t, 97)
	got := s.play(t, scenario, ask{Prompt: prompt})
	message := requireRefused(t, s, got, refusal{Kind: s.notFound, Status: http.StatusNotFound}, prompt, 1)
	assert.Contains(t, message, "404")
}

func scenarioReport() string {
	return fmt.Sprintf("clients: %d of the %d entries of the matrix ran and passed", passedScenarios.Load(), matrixSize())
}
