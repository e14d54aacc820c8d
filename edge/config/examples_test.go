package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
)

const examples = "../../configs/examples/"

func loadExample(t *testing.T, name string) *config.Snapshot {
	t.Helper()
	s, err := config.Load(examples + name)
	require.NoError(t, err)
	return s
}

// Every example of an Edge loads; only the legacy one is worth a warning.
func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob(examples + "*-edge.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		s := loadExample(t, filepath.Base(file))
		require.Equal(t, strings.Contains(file, "legacy"), len(s.Warnings) > 0, "%s: %v", file, s.Warnings)
	}
}

// inventory is configs/examples/site-inventory.yaml.
type inventory struct {
	Model               string `yaml:"model"`
	ContextWindowTokens uint64 `yaml:"context_window_tokens"`
	Machines            []struct {
		Node          string `yaml:"node"`
		Hardware      string `yaml:"hardware"`
		Provider      string `yaml:"provider"`
		Command       string `yaml:"command"`
		ContextTokens uint64 `yaml:"context_tokens"`
		Parallel      uint32 `yaml:"parallel"`
		LongSlots     uint32 `yaml:"long_slots"`
	} `yaml:"machines"`
}

// The inventory says how the servers are started, the configuration what they
// hold, and the two agree for GX10, OneXPlayer and the Mac.
func TestL07_InventoryAndConfigurationAgree(t *testing.T) {
	text, err := os.ReadFile(examples + "site-inventory.yaml")
	require.NoError(t, err)
	var inv inventory
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&inv))
	s := loadExample(t, "site-edge.yaml")

	model := s.Config.GetModels()[0]
	require.Equal(t, inv.Model, model.GetId())
	require.EqualValues(t, 262144, model.GetContextWindowTokens())
	require.Equal(t, inv.ContextWindowTokens, model.GetContextWindowTokens())
	require.Len(t, inv.Machines, 3)
	require.Len(t, model.GetProviders(), 3)
	require.Len(t, s.Config.GetNodes(), 3)
	for i, m := range inv.Machines {
		require.Equal(t, m.Node, model.GetProviders()[i].GetNode())
		require.Equal(t, m.Provider, model.GetProviders()[i].GetProvider())
		node := s.Config.GetNodes()[i]
		require.Equal(t, m.Node, node.GetId())
		p := node.GetProviders()[0]
		require.Equal(t, m.Provider, p.GetId())
		require.Equal(t, m.ContextTokens, p.GetTotalContextTokens(), m.Node)
		require.Equal(t, m.Parallel, p.GetCapacity(), m.Node)
		require.Equal(t, m.LongSlots, p.GetLongContextCapacity(), m.Node)
		require.EqualValues(t, m.LongSlots, m.ContextTokens/inv.ContextWindowTokens, "%s: as many long slots as whole windows fit", m.Node)
	}

	// The known sizes of the OneXPlayer: -np is only a maximum concurrency.
	onex := inv.Machines[1]
	require.Equal(t, "onexplayer", onex.Node)
	require.EqualValues(t, 524288, onex.ContextTokens)
	require.EqualValues(t, 3, onex.Parallel)
	require.EqualValues(t, 2, onex.LongSlots)
	require.Contains(t, onex.Command, "--ctx-size 524288 ")
	require.Contains(t, onex.Command, "-np 3 ")
	require.Contains(t, inv.Machines[0].Command, fmt.Sprintf("--max-model-len %d", inv.ContextWindowTokens))
	require.Contains(t, inv.Machines[2].Command, fmt.Sprintf("--max-model-len %d", inv.ContextWindowTokens))
	for _, file := range []string{"site-inventory.yaml", "site-edge.yaml", "../edge.yaml"} {
		text, err := os.ReadFile(examples + file)
		require.NoError(t, err)
		require.NotContains(t, string(text), "786432", file)
	}
}

// A third long slot, for the sake of -np 3, would need a context of 786432.
func TestL07_S04_AThirdLongSlotOfTheOneXPlayerIsRefused(t *testing.T) {
	text, err := os.ReadFile(examples + "site-edge.yaml")
	require.NoError(t, err)
	const from = "capacity: 3, long_context_capacity: 2"
	require.Contains(t, string(text), from)
	_, err = config.Parse("site-edge.yaml", []byte(strings.Replace(string(text), from, "capacity: 3, long_context_capacity: 3", 1)))
	require.ErrorContains(t, err, "found 524288; model \"qwen3.6:35b\"")
	require.ErrorContains(t, err, "needs at least 786432")
}

// The legacy example is promoted; migrated, it is the golden file, which means
// the same, and migrates to itself.
func TestS06_LegacyExampleIsMigrated(t *testing.T) {
	before := loadExample(t, "legacy-edge.yaml")
	require.Equal(t, []admission.Scope{{Key: admission.PoolScope, MaxQueue: 16, Timeout: 60_000_000_000}}, before.Admission.Scopes)
	require.Len(t, before.Warnings, 2)

	text, err := os.ReadFile(examples + "legacy-edge.yaml")
	require.NoError(t, err)
	m, err := config.Migrate("legacy-edge.yaml", text)
	require.NoError(t, err)
	golden, err := os.ReadFile("testdata/legacy_migrated.yaml")
	require.NoError(t, err)
	require.Equal(t, string(golden), string(m.Text))
	require.Len(t, m.Changes, 6)

	after, err := config.Parse("edge.yaml", m.Text)
	require.NoError(t, err)
	require.Empty(t, after.Warnings)
	require.Equal(t, before.Admission, after.Admission)
	again, err := config.Migrate("edge.yaml", m.Text)
	require.NoError(t, err)
	require.Equal(t, string(m.Text), string(again.Text))
}

// A candidate on every node that has the adapter, for a route as for no model.
func TestR02_ARouteHasACandidateOnEveryNodeWithTheAdapter(t *testing.T) {
	s, err := config.Parse("edge.yaml", []byte(`
nodes:
  - {id: a, token_sha256: "`+strings.Repeat("a1", 32)+`", providers: [{id: lemonade, type: simulator, capacity: 2}, {id: other, type: simulator}]}
  - {id: b, token_sha256: "`+strings.Repeat("b2", 32)+`", providers: [{id: lemonade, type: simulator}]}
openai:
  model_routes:
    - {model: tiny, adapter: lemonade, target: t, max_queue: 4, queue_timeout_ms: 10}
    - {model: one, adapter: b/lemonade}
models:
  - {id: m, providers: [{node: a, provider: lemonade}]}
`))
	require.NoError(t, err)
	onA, onB := admission.ResourceKey{Node: "a", Provider: "lemonade"}, admission.ResourceKey{Node: "b", Provider: "lemonade"}
	require.Equal(t, []admission.Group{
		{Key: "m", Scope: admission.PoolScope, Candidates: []admission.Candidate{{Resource: onA, Target: "m"}}},
		{Key: "tiny", Scope: "route:tiny", Candidates: []admission.Candidate{{Resource: onA, Target: "t"}, {Resource: onB, Target: "t"}}},
		{Key: "one", Scope: "route:one", Candidates: []admission.Candidate{{Resource: onB, Target: "one"}}},
	}, s.Admission.Groups)
	require.Equal(t, admission.Scope{Key: "route:tiny", MaxQueue: 4, Timeout: 10_000_000}, s.Admission.Scopes[1])
	require.Len(t, s.Admission.Resources, 3, "one resource each, whoever names it")
}

// An override of an admin stands before the file's value, which is still told.
func TestOverridesAreShown(t *testing.T) {
	s := loadExample(t, "site-edge.yaml")
	values := s.Effective(config.Override{Node: "mac", Value: "false", By: "me"})
	var out strings.Builder
	require.NoError(t, values.Write(&out))
	require.Equal(t, 1, strings.Count(out.String(), "# override"))
	require.Contains(t, out.String(), "enabled: false                         # override by me, before true\n")
	require.NotContains(t, out.String(), s.Config.GetNodes()[0].GetTokenSha256())

	for i, v := range s.Effective() {
		if values[i].From != configs.FromOverride {
			require.Equal(t, v.Value, values[i].Value)
		}
	}
}
