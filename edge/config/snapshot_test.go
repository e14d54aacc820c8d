package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/config"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

func example(t *testing.T) *config.Snapshot {
	t.Helper()
	s, err := config.Parse("edge.yaml", []byte(configs.EdgeExample))
	require.NoError(t, err)
	return s
}

// replace parses the example with parts of its text replaced.
func replace(t *testing.T, pairs ...string) *config.Snapshot {
	t.Helper()
	s, err := config.Parse("edge.yaml", []byte(replaced(t, pairs...)))
	require.NoError(t, err)
	return s
}

func replaced(t *testing.T, pairs ...string) string {
	t.Helper()
	text := configs.EdgeExample
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

func TestR04_ExampleShowsWhoOwnsWhat(t *testing.T) {
	s := example(t)
	require.Empty(t, s.Warnings)

	// Queue policy: on the pool and on the route, and nowhere else.
	require.Equal(t, []admission.Scope{
		{Key: admission.PoolScope, MaxQueue: 64, Timeout: 240_000_000_000},
		{Key: "route:tiny", MaxQueue: 4, Timeout: 10_000_000_000},
	}, s.Admission.Scopes)
	for _, n := range s.Config.GetNodes() {
		for _, p := range n.GetProviders() {
			require.Zero(t, p.GetMaxQueue())
			require.Zero(t, p.GetQueueTimeoutMs())
			require.NotZero(t, p.GetCapacity())
		}
	}
	// Capacity: on the provider, which the route shares with the model.
	require.Equal(t, []admission.Candidate{{Resource: admission.ResourceKey{Node: "onexplayer", Provider: "lemonade"}, Target: "Qwen3-0.6B-GGUF"}}, s.Admission.Groups[1].Candidates)
	for _, sentence := range []string{"Queue policy, that is", "Capacity, that is", "belongs to the provider"} {
		require.Contains(t, strings.ReplaceAll(configs.EdgeExample, "\n#     ", " "), sentence)
	}
}

func TestL07_ExampleKeepsTheKnownSizes(t *testing.T) {
	s := example(t)
	require.Equal(t, []config.Model{
		{ID: "qwen3.6:35b", Group: "qwen3.6:35b", ContextWindow: 262144},
		{ID: "tiny", Group: "tiny", Route: true},
	}, s.Models)
	onex := s.Config.GetNodes()[1].GetProviders()[0]
	require.EqualValues(t, 524288, onex.GetTotalContextTokens(), "never 786432: -np is only a maximum concurrency")
	require.EqualValues(t, 3, onex.GetCapacity())
	require.EqualValues(t, 2, onex.GetLongContextCapacity())
}

func TestL01_ThresholdIsLoadedAndShown(t *testing.T) {
	s := replace(t, "long_context_threshold_tokens: 100000", "long_context_threshold_tokens: 12345")
	require.EqualValues(t, 12345, s.Config.GetLongContextThresholdTokens())
	var out strings.Builder
	require.NoError(t, s.Effective().Write(&out))
	require.Contains(t, out.String(), "\nlong_context_threshold_tokens: 12345 ")

	s = replace(t, "long_context_threshold_tokens: 100000", "")
	require.EqualValues(t, 100_000, s.Config.GetLongContextThresholdTokens())
}

func TestL02_NoProviderHasAWindowOfItsOwn(t *testing.T) {
	fields := (&configv1.Provider{}).ProtoReflect().Descriptor().Fields()
	require.Nil(t, fields.ByName("context_window_tokens"))
	_, err := config.Parse("edge.yaml", []byte(replaced(t, "        priority: 10", "        context_window_tokens: 1000")))
	require.ErrorContains(t, err, `unknown key "context_window_tokens"`)

	var out strings.Builder
	require.NoError(t, example(t).Effective().Write(&out))
	require.Contains(t, out.String(), "context_window_tokens: 262144")
}

func TestS04_BadContextIsRejectedAtRefreshToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(path, []byte(configs.EdgeExample), 0o600))
	_, err := config.Load(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(replaced(t, "total_context_tokens: 524288", "total_context_tokens: 524287")), 0o600))
	_, err = config.Load(path)
	require.ErrorContains(t, err, "found 524287; model \"qwen3.6:35b\"")
	require.ErrorContains(t, err, path+":", "the file as it was named")
}

func TestDefaultsAreFilledIn(t *testing.T) {
	s, err := config.Parse("edge.yaml", nil)
	require.NoError(t, err)
	require.True(t, proto.Equal(&configv1.EdgeConfig{
		Edge: &configv1.Edge{
			Id: "edge", Listen: "127.0.0.1:8484", NodeListen: "127.0.0.1:8484", AdminListen: "127.0.0.1:8484",
			BodyLimitBytes: proto.Uint64(33554432),
			Auth:           &configv1.Auth{Mode: "none"},
			Heartbeat:      &configv1.Heartbeat{IntervalMs: proto.Uint32(5000), TimeoutMs: proto.Uint32(15000)},
			StopGraceMs:    proto.Uint32(30000),
		},
		LongContextThresholdTokens: proto.Uint64(100000),
		ProviderPool:               &configv1.ProviderPool{MaxQueue: proto.Uint32(64), QueueTimeoutMs: proto.Uint32(240000), Selection: "balanced"},
		Openai:                     &configv1.OpenAI{IdleTimeoutMs: proto.Uint32(600000)},
	}, s.Config), "%v", s.Config)
}

// The written values of the example are the defaults where it says so.
func TestExampleNamesTheDefaults(t *testing.T) {
	var lines []string
	for _, line := range strings.Split(configs.EdgeExample, "\n") {
		key, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "listen", "body_limit_bytes", "heartbeat", "stop_grace_ms", "long_context_threshold_tokens", "max_queue", "queue_timeout_ms",
			"selection", "timeout_sec", "idle_timeout_ms", "keepalive_ms", "cors", "auth", "enabled", "health",
			"request_timeout_ms", "cancel", "cancel_grace_ms", "gate_wait_ms":
			continue
		}
		lines = append(lines, line)
	}
	short, err := config.Parse("edge.yaml", []byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	require.Empty(t, configs.Diff(short.Config, example(t).Config))
}

func TestCredentials(t *testing.T) {
	s := example(t)
	ring := auth.NewKeyring(s.Credentials)
	require.False(t, ring.Open())
	key, ok := ring.APIKey("example api key")
	require.True(t, ok)
	require.Equal(t, "laptop", key.Name())
	name, ok := ring.Admin("example admin token")
	require.True(t, ok)
	require.Equal(t, "me", name)
	name, ok = ring.Reader("example read token")
	require.True(t, ok)
	require.Equal(t, "control-plane", name)
	known, ok := ring.Node("gx10", "example node token of gx10")
	require.True(t, known && ok)
	known, ok = ring.Node("gx10", "example node token of onexplayer")
	require.True(t, known && !ok)
}

func TestCase_I12_NothingShowsSecrets(t *testing.T) {
	s := example(t)
	var out strings.Builder
	require.NoError(t, s.Effective().Write(&out))
	after := replace(t, auth.HashToken("example api key"), auth.HashToken("another"))
	changes, _ := config.Changes(s, after)
	require.Equal(t, []string{"openai.api_keys[laptop].sha256: changed"}, changes)
	for _, secret := range []string{"example api key", "example admin token", "example read token", "example node token of gx10"} {
		require.NotContains(t, out.String(), auth.HashToken(secret))
		require.NotContains(t, strings.Join(changes, ""), auth.HashToken(secret))
	}
}

func TestTextNamesTheText(t *testing.T) {
	a, b := example(t), replace(t, "id: home", "id: away")
	require.Len(t, a.Text, 12)
	require.NotEqual(t, a.Text, b.Text)
	require.Equal(t, a.Text, example(t).Text)
}

func TestLoadNamesAMissingFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "edge.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(configs.EdgeExample))
	f.Add([]byte("nodes: [{id: a, providers: [{}]}]\nmodels: [{providers: [{node: a}]}]\nopenai: {model_routes: [{}]}"))
	f.Add([]byte("edge: {listen: ':', tls: {}, admin_tokens: [{}], heartbeat: {}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("_file")) {
			t.Skip() // no files of this machine
		}
		s, err := config.Parse("f", text)
		if (s == nil) == (err == nil) {
			t.Fatalf("snapshot %v and error %v", s, err)
		}
		if err != nil {
			return
		}
		if changes, restart := config.Changes(s, s); len(changes)+len(restart) != 0 {
			t.Fatalf("differs from itself: %q", changes)
		}
		var out strings.Builder
		if err := s.Effective().Write(&out); err != nil {
			t.Fatal(err)
		}
		auth.NewKeyring(s.Credentials)
	})
}

func TestTheLargestBodyLimitIsTheRules(t *testing.T) {
	const from = "body_limit_bytes: 33554432"
	s := replace(t, from, fmt.Sprintf("body_limit_bytes: %d", config.MaxBodyLimitBytes))
	require.EqualValues(t, config.MaxBodyLimitBytes, s.Config.GetEdge().GetBodyLimitBytes())
	_, err := config.Parse("edge.yaml", []byte(replaced(t, from, fmt.Sprintf("body_limit_bytes: %d", config.MaxBodyLimitBytes+1))))
	require.ErrorContains(t, err, "body_limit_bytes")
}
