package engines

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var (
	block   = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")
	address = regexp.MustCompile(`http://127\.0\.0\.1:8484[^\s"'` + "`" + `,)]*`)
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// withoutV1 are the clients of docs/clients.md that add /v1 or /api themselves.
var withoutV1 = map[string]bool{"Anthropic SDKs": true, "anthropic-sdk-go": true, "ollama npm": true, "Claude Code": true}

// The settings that docs/clients.md shows parse, point where the applications of
// this folder point, and claim to be run only where the matrix runs them.
func TestSettingsOfClientsAreThoseThatAreRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n## ")
	require.True(t, found)
	sections := map[string]string{}
	for _, s := range strings.Split(rest, "\n## ") {
		name, text, _ := strings.Cut(s, "\n")
		sections[name] = text
	}
	for _, name := range []string{
		"OpenAI SDKs", "openai-go", "Anthropic SDKs", "anthropic-sdk-go", "AI SDK", "LangChain", "ollama npm",
		"Open WebUI", "Continue", "Cline", "Codex", "opencode", "Claude Code", "Zed", "LibreChat",
	} {
		assert.Contains(t, sections, name)
	}

	ran := map[string]bool{"openai-go": true} // TestChat and its like, beside the matrix
	for _, r := range matrix {
		ran[r.client] = true
	}
	claimed := map[string]bool{}
	for name, text := range sections {
		urls := address.FindAllString(text, -1)
		assert.NotEmpty(t, urls, name)
		for _, u := range urls {
			assert.Equal(t, withoutV1[name], !strings.HasSuffix(u, "/v1"), "%s: %s", name, u)
		}
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			var v any
			switch b[1] {
			case "json":
				assert.NoError(t, json.Unmarshal([]byte(b[2]), &v), "%s:\n%s", name, b[2])
			case "yaml":
				assert.NoError(t, yaml.Unmarshal([]byte(b[2]), &v), "%s:\n%s", name, b[2])
			}
		}
		if _, line, found := strings.Cut(text, "\nRun: "); found {
			line, _, _ = strings.Cut(line, ".")
			for _, c := range quoted.FindAllStringSubmatch(line, -1) {
				assert.True(t, ran[c[1]], "%s says that %s is run", name, c[1])
				claimed[c[1]] = true
			}
		}
	}
	for _, r := range matrix {
		if r.client != "anthropic-sdk-go" {
			assert.True(t, claimed[r.client], "no section says that %s is run", r.client)
		}
	}
}

// The variables that docs/clients.md names for the libraries are those by which
// the applications are configured.
func TestVariablesOfClientsAreThoseThatAreRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	require.NoError(t, err)
	driver, err := os.ReadFile("node_test.go")
	require.NoError(t, err)
	for _, name := range []string{
		"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN",
	} {
		assert.Contains(t, string(page), name)
		assert.Contains(t, string(driver), `"`+name+`=`)
	}
}
