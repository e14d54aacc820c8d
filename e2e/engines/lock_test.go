package engines

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A lock file written behind a private registry names that host in "resolved",
// and then installs nowhere else.
func TestLockFileInstallsAnywhere(t *testing.T) {
	data, err := os.ReadFile("clients/package-lock.json")
	require.NoError(t, err)
	var lock struct {
		Packages map[string]struct {
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	require.NoError(t, json.Unmarshal(data, &lock))
	for _, name := range []string{"openai", "@anthropic-ai/sdk", "ai", "@ai-sdk/openai-compatible", "ollama", "@langchain/openai"} {
		require.Contains(t, lock.Packages, "node_modules/"+name)
	}
	for name, p := range lock.Packages {
		if name == "" {
			continue // the project itself
		}
		assert.NotEmpty(t, p.Integrity, name)
		if p.Resolved != "" {
			assert.True(t, strings.HasPrefix(p.Resolved, "https://registry.npmjs.org/"), "%s comes from %s", name, p.Resolved)
		}
	}
}
