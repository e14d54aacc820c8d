package schema_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/configs/schema"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// files are the schemas by kind of file.
var files = map[string]proto.Message{
	"edge":         &configv1.EdgeConfig{},
	"node":         &configv1.NodeConfig{},
	"controlplane": &configv1.ControlPlaneConfig{},
}

func compile(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(kind + ".schema.json")
	require.NoError(t, err)
	return s
}

// instance is the text of a file as the validator takes it.
func instance(t *testing.T, text string) any {
	t.Helper()
	var parsed any
	require.NoError(t, yaml.Unmarshal([]byte(text), &parsed))
	packed, err := json.Marshal(parsed)
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(packed)))
	require.NoError(t, err)
	return value
}

// Every example names its schema, at the place where the schema is, and is what
// it allows.
func TestExamplesAreWhatTheirSchemasAllow(t *testing.T) {
	checked := 0
	for _, pattern := range []string{"../*.yaml", "../examples/*-edge.yaml", "../examples/*-node.yaml"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			first, _, _ := strings.Cut(string(text), "\n")
			named, found := strings.CutPrefix(first, "# yaml-language-server: $schema=")
			require.True(t, found, "%s begins with %q", path, first)
			require.FileExists(t, filepath.Join(filepath.Dir(path), named))
			kind := strings.TrimSuffix(filepath.Base(named), ".schema.json")
			require.Equal(t, kind, string(configs.KindOf(text)), path)
			require.NoError(t, compile(t, kind).Validate(instance(t, string(text))), path)
			checked++
		}
	}
	require.GreaterOrEqual(t, checked, 6)
}

func TestSchemasAgreeWithTheLoader(t *testing.T) {
	hash := strings.Repeat("a1", 32)
	provider := func(keys string) string {
		return "nodes: [{id: n, token_sha256: " + hash + ", providers: [{id: p, type: simulator, " + keys + "}]}]"
	}
	for text, valid := range map[string]bool{
		"":        true,
		"edge: ~": true,
		"provider_pool: {max_queue: ~, selection: ~}":        true,
		"provider_pool: {max_queue: 0, selection: priority}": true,
		provider("capacity: 0"):                              true,
		provider("priority: -5"):                             true,
		provider("health: degraded"):                         true,
		"openai: {cors: {allowed_origins: [\"https://a\"]}}": true,

		"egde: {}":                                                           false,
		"edge: []":                                                           false,
		"edge: {id: 7}":                                                      true, // see below
		"edge: {id: [a]}":                                                    false,
		"provider_pool: {max_queue: -1}":                                     false,
		"provider_pool: {max_queue: 1.5}":                                    false,
		"provider_pool: {max_queue: \"64\"}":                                 false,
		"provider_pool: {max_queue: 1000001}":                                false,
		"provider_pool: {queue_timeout_ms: 0}":                               false,
		"provider_pool: {selection: fastest}":                                false,
		"edge: {heartbeat: {interval_ms: 1}}":                                false,
		"edge: {body_limit_bytes: 2147483648}":                               false,
		"openai: {timeout_sec: 4294967296}":                                  false,
		"openai: {cors: {allowed_origins: x}}":                               false,
		"openai: {cors: {allowed_origins: [\"\"]}}":                          false,
		"models: [{providers: []}]":                                          false,
		"models: [~]":                                                        false,
		"models: {m: {}}":                                                    false,
		"models: [{id: m, providers: [{node: n}]}]":                          false,
		"nodes: [{id: \"my box\"}]":                                          false,
		"nodes: [{id: n, token_sha256: secret}]":                             false,
		provider("capacity: many"):                                           false,
		provider("capacty: 4"):                                               false,
		provider("enabled: \"yes\""):                                         false,
		provider("simulator: {tokens_per_second: -1}"):                       false,
		strings.Replace(provider("capacity: 1"), "type: simulator, ", "", 1): false,
	} {
		loaded := configs.Unmarshal("edge.yaml", []byte(text), &configv1.EdgeConfig{})
		require.Equal(t, valid, loaded == nil, "loader: %s: %v", text, loaded)
		err := compile(t, "edge").Validate(instance(t, text))
		if text == "edge: {id: 7}" {
			// Text that looks like a number is read as written; editors ask for quotes.
			require.Error(t, err)
			continue
		}
		require.Equal(t, valid, err == nil, "schema: %s: %v", text, err)
	}
	for text, valid := range map[string]bool{
		"node: {id: n, edge_url: \"http://e\", token_env: T}\nreconnect: {max_attempts: 0, interval_sec: 0.5}": true,
		"":                              false,
		"node: {id: n}":                 false,
		"node: {id: n, edge_url: \"\"}": false,
		"node: {id: n, edge_url: e}\nreconnect: {max_attempts: -1}":        false,
		"node: {id: n, edge_url: e, ca_pin: abc}":                          false,
		"node: {id: n, edge_url: e}\nnodes: []":                            false,
		"node: {id: n, edge_url: e}\nprovider_credentials: [{key_env: K}]": false,
	} {
		loaded := configs.Unmarshal("node.yaml", []byte(text), &configv1.NodeConfig{})
		require.Equal(t, valid, loaded == nil, "loader: %s: %v", text, loaded)
		err := compile(t, "node").Validate(instance(t, text))
		require.Equal(t, valid, err == nil, "schema: %s: %v", text, err)
	}
}

// The schemas are those of the messages as they are; `make checkgenerate` judges
// the comments too, which only the proto file has.
func TestSchemasAreFresh(t *testing.T) {
	for kind, m := range files {
		text, err := schema.Of(m.ProtoReflect().Descriptor())
		require.NoError(t, err)
		written, err := os.ReadFile(kind + ".schema.json")
		require.NoError(t, err)
		require.Equal(t, bare(t, text), bare(t, written), "run make generate")
	}
}

// bare is a schema without what comments say.
func bare(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(text, &v))
	strip(v, false)
	return v
}

// strip removes what comments say; below "properties" stand names of keys, which
// may be the same words.
func strip(v any, names bool) {
	switch v := v.(type) {
	case map[string]any:
		if !names {
			delete(v, "description")
			delete(v, "deprecated")
		}
		for key, below := range v {
			strip(below, !names && (key == "properties" || key == "definitions"))
		}
	case []any:
		for _, below := range v {
			strip(below, false)
		}
	}
}

// Every key says what it is for.
func TestEveryKeyIsDescribed(t *testing.T) {
	for kind := range files {
		written, err := os.ReadFile(kind + ".schema.json")
		require.NoError(t, err)
		var s struct {
			Definitions map[string]struct {
				Description string
				Properties  map[string]struct{ Description string }
			}
		}
		require.NoError(t, json.Unmarshal(written, &s))
		require.NotEmpty(t, s.Definitions)
		for name, d := range s.Definitions {
			require.NotEmpty(t, d.Description, name)
			for key, p := range d.Properties {
				require.NotEmpty(t, p.Description, "%s.%s", name, key)
			}
		}
	}
}
