package engines

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The servers that clients are run against, through IOP.
const (
	onOllama   = "Ollama 0.6.5"
	onLlamacpp = "llama.cpp stand-in"
	onFaulty   = "faulty server"
)

// row is what one client is run through against one server.
type row struct {
	client, server string
	scenarios      []string
	// not says what is not run, and why.
	not string
}

// matrix is the list that TestClients runs, each entry, and that README.md
// prints. There is no other list, so the page cannot claim what is not run.
var matrix = []row{
	{
		"openai (npm)", onOllama,
		[]string{
			"chat", "stream", "length", "completions", "embeddings float", "models", "model", "abort", "unknown model", "wrong key",
			"tools refused", "responses refused", "retry 429", "retry 503",
		},
		"a tool call or a JSON answer: the counting model knows numbers only",
	},
	{
		"openai (npm)", onLlamacpp,
		[]string{
			"chat", "stream", "length", "tools", "tools stream", "structured", "completions", "responses", "responses stream",
			"embeddings", "embeddings float", "abort", "retry 429", "retry 503", "audio refused", "images refused",
		},
		"",
	},
	{"openai (npm)", onFaulty, []string{"no retry 502", "no retry 504"}, ""},
	{
		"@anthropic-ai/sdk", onOllama,
		[]string{"messages refused"},
		"messages: Ollama 0.6.5 has none",
	},
	{
		"@anthropic-ai/sdk", onLlamacpp,
		[]string{
			"chat", "stream", "length", "tools", "tools stream", "count tokens", "auth token", "abort", "unknown model", "wrong key",
			"retry 429", "retry 503",
		},
		"models: `/v1/models` lists them in OpenAI's form only",
	},
	{"@anthropic-ai/sdk", onFaulty, []string{"no retry 502", "no retry 504"}, ""},
	{
		"ai + @ai-sdk/openai-compatible", onOllama,
		[]string{"chat", "stream", "length", "embeddings", "abort", "unknown model", "wrong key", "tools refused", "retry 429", "retry 503"},
		"",
	},
	{
		"ai + @ai-sdk/openai-compatible", onLlamacpp,
		[]string{"chat", "stream", "length", "tools", "tools stream", "structured", "embeddings", "abort"},
		"",
	},
	{"ai + @ai-sdk/openai-compatible", onFaulty, []string{"retries all the same 502"}, ""},
	{
		"@langchain/openai", onOllama,
		[]string{"chat", "stream", "length", "embeddings", "abort", "unknown model", "wrong key", "tools refused", "retry 429", "retry 503"},
		"",
	},
	{
		"@langchain/openai", onLlamacpp,
		[]string{"chat", "stream", "length", "tools", "tools stream", "structured", "embeddings", "abort"},
		"",
	},
	{"@langchain/openai", onFaulty, []string{"retries all the same 502"}, ""},
	{
		"ollama (npm)", onOllama,
		[]string{
			"chat", "stream", "length", "generate", "generate stream", "embeddings", "list", "ps", "show", "version", "abort",
			"unknown model", "wrong key", "tools refused",
		},
		"retries: the library has none; pull, push, create, copy, delete: IOP manages no models",
	},
	{"ollama (npm)", onLlamacpp, []string{"native refused"}, "the rest: llama.cpp has no `/api/chat` of Ollama's form"},
}

var rewrite = flag.Bool("rewrite", false, "write the table of README.md anew")

// The table of README.md is the matrix that TestClients runs.
// `go test ./e2e/engines -run TestReadmeTable -args -rewrite` brings it up to date.
func TestReadmeTable(t *testing.T) {
	const begin, end = "<!-- matrix -->\n", "<!-- /matrix -->"
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found, "README.md needs the line %s", begin)
	shown, after, found := strings.Cut(rest, end)
	require.True(t, found, "README.md needs the line %s", end)
	want := matrixTable()
	if *rewrite {
		require.NoError(t, os.WriteFile("README.md", []byte(before+begin+want+end+after), 0o600))
		return
	}
	assert.Equal(t, want, shown, "run `go test ./e2e/engines -run TestReadmeTable -args -rewrite`")
}

func TestMatrixNamesEachScenarioOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range matrix {
		assert.NotEmpty(t, r.scenarios, r.client)
		for _, s := range r.scenarios {
			name := r.client + "/" + r.server + "/" + s
			assert.False(t, seen[name], name)
			seen[name] = true
		}
	}
	assert.Len(t, seen, matrixSize())
}

func matrixSize() int {
	n := 0
	for _, r := range matrix {
		n += len(r.scenarios)
	}
	return n
}

func matrixTable() string {
	var b strings.Builder
	b.WriteString("| client | server | run | not run |\n| --- | --- | --- | --- |\n")
	for _, r := range matrix {
		not := r.not
		if not == "" {
			not = "–"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.client, r.server, strings.Join(r.scenarios, ", "), not)
	}
	return b.String()
}
