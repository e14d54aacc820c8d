package configs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

func edge(t *testing.T, text string) (*configv1.EdgeConfig, error) {
	t.Helper()
	cfg := &configv1.EdgeConfig{}
	return cfg, configs.Unmarshal("edge.yaml", []byte(text), cfg)
}

func TestUnknownKeyHasPlaceAndSuggestion(t *testing.T) {
	_, err := edge(t, "nodes:\n  - id: n\n    token_sha256: "+strings.Repeat("a1", 32)+"\n    providers:\n"+
		"      - id: p\n        type: simulator\n"+strings.Repeat("#\n", 7)+"      "+"  capacty: 4\n")
	require.EqualError(t, err, `edge.yaml:14:9: unknown key "capacty" (did you mean "capacity"?) in nodes[0].providers[0]`)
}

func TestProblemsAreTypedSortedAndComplete(t *testing.T) {
	_, err := edge(t, "provider_pool: {selection: x}\nedge:\n  idd: a\n  listen: [1]\n")
	var problems configs.Problems
	require.ErrorAs(t, err, &problems)
	require.Equal(t, configs.Problems{
		{File: "edge.yaml", Line: 1, Column: 28, Path: "provider_pool.selection", Message: `found "x"; allowed: balanced, priority`},
		{File: "edge.yaml", Line: 3, Column: 3, Path: "edge.idd", OfKey: true, Message: `unknown key "idd" (did you mean "id"?) in edge`},
		{File: "edge.yaml", Line: 4, Column: 11, Path: "edge.listen", Message: "found a list; expected text"},
	}, problems)
	require.Equal(t, 3, len(strings.Split(err.Error(), "\n")))
}

func TestNullIsOmitted(t *testing.T) {
	cfg, err := edge(t, "edge: ~\nmodels: null\nprovider_pool:\n  max_queue: ~\n  queue_timeout_ms:\n")
	require.NoError(t, err)
	require.Nil(t, cfg.Edge)
	require.Nil(t, cfg.ProviderPool.MaxQueue)
	require.Nil(t, cfg.ProviderPool.QueueTimeoutMs)

	cfg, err = edge(t, "provider_pool: {max_queue: 0}")
	require.NoError(t, err)
	require.NotNil(t, cfg.ProviderPool.MaxQueue, "a written 0 is no null")
}

func TestEmptyFilesAreEmptyMessages(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# only a comment", "---\n", "~", "{}"} {
		cfg, err := edge(t, text)
		require.NoError(t, err, "%q", text)
		require.True(t, proto.Equal(&configv1.EdgeConfig{}, cfg), "%q", text)
	}
}

func TestByteOrderMarkAndCRLFAreTolerated(t *testing.T) {
	cfg, err := edge(t, "\xef\xbb\xbfedge:\r\n  id: a\r\n  state_dir: \"b\"\r\n")
	require.NoError(t, err)
	require.Equal(t, "a", cfg.Edge.Id)
	require.Equal(t, "b", cfg.Edge.StateDir)

	_, err = edge(t, "\xef\xbb\xbfedg: {}\r\n")
	require.EqualError(t, err, `edge.yaml:1:1: unknown key "edg" (did you mean "edge"?)`)
}

func TestOtherEncodingsAreRefusedWithTheirPlace(t *testing.T) {
	_, err := edge(t, "edge:\n  id: caf\xe9\n")
	require.EqualError(t, err, "edge.yaml:2:10: byte 0xe9 is not UTF-8; save the file as UTF-8")
	_, err = edge(t, "\xff\xfee\x00d\x00")
	require.EqualError(t, err, "edge.yaml:1:1: byte 0xff is not UTF-8; save the file as UTF-8")
	_, err = edge(t, "e\x00d\x00")
	require.EqualError(t, err, "edge.yaml:1:2: a zero byte; save the file as UTF-8 text")
}

func TestColumnsCountCharacters(t *testing.T) {
	_, err := edge(t, `edge: {id: "héé", idd: 1}`)
	require.EqualError(t, err, `edge.yaml:1:19: unknown key "idd" (did you mean "id"?) in edge`)
}

func TestFilesHaveALimit(t *testing.T) {
	text := "edge: {id: a}\n#" + strings.Repeat("x", configs.MaxFileBytes)
	_, err := edge(t, text)
	require.EqualError(t, err, fmt.Sprintf("edge.yaml:1:1: the file has %d bytes; at most %d are read", len(text), configs.MaxFileBytes))

	path := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	_, err = configs.Read(path)
	require.ErrorContains(t, err, "at most")
	_, err = configs.Read(filepath.Dir(path))
	require.ErrorContains(t, err, "is a folder")
	_, err = configs.Read(path + ".not")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// An alias bomb: a few lines that stand for very many candidates.
func TestAliasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("nodes:\n  - &n\n    id: n\n    providers: [")
	for range 1000 {
		b.WriteString("{id: p, type: simulator},")
	}
	b.WriteString("]\n")
	for range 2000 {
		b.WriteString("  - *n\n")
	}
	_, err := edge(t, b.String())
	require.ErrorContains(t, err, "aliases (*n) add more than 200000 entries to the file")

	for _, self := range []string{"edge: &e\n  tls: *e\n", "models: &m [*m]", "models: &m\n  - providers: *m\n"} {
		_, err := edge(t, self)
		require.Error(t, err, "%q", self)
	}
}

func TestAliasesStandForTheirValue(t *testing.T) {
	cfg, err := edge(t, "edge: {id: &name n1}\nmodels:\n  - &m {id: a, providers: [&c {node: *name, provider: p}]}\n  - {id: b, providers: [*c]}\n")
	require.NoError(t, err)
	require.Equal(t, "n1", cfg.Models[1].Providers[0].Node)
	require.True(t, proto.Equal(cfg.Models[0].Providers[0], cfg.Models[1].Providers[0]))
}

func TestNumbersAreReadAsWritten(t *testing.T) {
	for text, want := range map[string]uint32{"0": 0, "7": 7, "+7": 7, "0x10": 16, "0o17": 15, "1_000": 1000} {
		cfg, err := edge(t, "openai: {timeout_sec: "+text+"}")
		require.NoError(t, err, text)
		require.Equal(t, want, cfg.Openai.TimeoutSec, text)
	}
	for _, text := range []string{"1.0", "1e3", "'1'", "010", "-1", "4294967296", "4KB", "[1]", "{a: 1}", "true", "!!str 1", "2001-01-01"} {
		_, err := edge(t, "openai: {timeout_sec: "+text+"}")
		require.ErrorContains(t, err, "edge.yaml:1:23: openai.timeout_sec: found ", text)
	}
	cfg, err := edge(t, "nodes: [{id: a, token_sha256: "+strings.Repeat("0", 64)+", providers: [{id: 007, type: simulator, priority: -2147483648}]}]")
	require.NoError(t, err)
	require.Equal(t, "007", cfg.Nodes[0].Providers[0].Id, "text keeps its spelling, also when it looks like a number")
	require.EqualValues(t, -2147483648, cfg.Nodes[0].Providers[0].Priority)
	_, err = edge(t, "nodes: [{id: a, token_sha256: "+strings.Repeat("0", 64)+", providers: [{id: b, type: simulator, priority: -2147483649}]}]")
	require.ErrorContains(t, err, "expected at least -2147483648")
}

func TestPlacesOfValues(t *testing.T) {
	doc, problems := configs.Decode("f", []byte("edge:\n  id: a\n  tls:\n    cert_file: b\n    key_file: c\nmodels:\n  - id: m\n    providers: [{node: n, provider: p}]\n"), &configv1.EdgeConfig{})
	require.Empty(t, problems)
	for path, want := range map[string][2]int{
		"edge.id":                     {2, 7},
		"edge.tls":                    {3, 3}, // the key of a block
		"edge.tls.key_file":           {5, 15},
		"models[0].id":                {7, 9},
		"models[0].providers":         {8, 16},
		"models[0].providers[0].node": {8, 24},
		"models[0].providers[0].nope": {8, 17}, // the nearest part that is there
		"edge.listen":                 {1, 1},
		"openai.timeout_sec":          {1, 1},
	} {
		line, column := doc.At(path)
		require.Equal(t, want, [2]int{line, column}, path)
	}
	require.True(t, doc.Has("edge.id"))
	require.False(t, doc.Has("edge.listen"))
}

func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "MARK-hunter2"
	for _, text := range []string{
		"nodes: [{id: a, token_sha256: %s}]",
		"nodes: [{id: a, token_sha256: [%s]}]",
		"nodes: [{id: a, token_sha256: {%s: 1}}]",
		"openai: {api_keys: [{name: a, sha256: %s}]}",
		"edge: {admin_tokens: [{name: a, sha256: !!binary %s}]}",
		"edge: {admin_tokens: [{name: a, sha256: %s}",
		"edge:\n  admin_tokens:\n  - name: a\n  sha256: %s",
		"openai:\n\tapi_keys: %s",
	} {
		_, err := edge(t, fmt.Sprintf(text, secret))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "hunter2", text)
	}
	require.Equal(t, "http://***@h:1/v1?***", configs.RedactURL("http://u:hunter2@h:1/v1?k=hunter2"))
	require.Equal(t, "(not shown)", configs.RedactURL("http://u:hunter2@h:port"))
	require.Equal(t, "http://h:1/v1", configs.RedactURL("http://h:1/v1"))
}

// Configuration messages keep to what the loader supports.
func TestMessagesUseSupportedFieldsOnly(t *testing.T) {
	messages := configv1.File_iop_config_v1_config_proto.Messages()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			fd := fields.Get(j)
			require.False(t, fd.IsMap(), fd.FullName())
			switch fd.Kind() {
			case protoreflect.BoolKind, protoreflect.StringKind, protoreflect.DoubleKind, protoreflect.MessageKind,
				protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
			default:
				t.Errorf("%s has kind %v", fd.FullName(), fd.Kind())
			}
		}
	}
}

func TestKindOf(t *testing.T) {
	require.Equal(t, configs.KindEdge, configs.KindOf([]byte(configs.EdgeExample)))
	require.Equal(t, configs.KindNode, configs.KindOf([]byte(configs.NodeExample)))
	require.Equal(t, configs.KindControlPlane, configs.KindOf([]byte("edges: []\ncontrolplane: {}")))
	require.Equal(t, configs.KindEdge, configs.KindOf([]byte("[")))
	require.Equal(t, configs.KindEdge, configs.KindOf(nil))
}

// People write the key itself where an entry about a key belongs.
func TestSecretsInThePlaceOfEntriesAreNotShown(t *testing.T) {
	for _, text := range []string{
		"openai: {api_keys: [sk-MARK]}", "openai: {api_keys: sk-MARK}", "openai: {api_keys: [[sk-MARK]]}",
		"edge: {admin_tokens: sk-MARK, read_tokens: [sk-MARK]}", "nodes: [sk-MARK]", "nodes: sk-MARK",
	} {
		_, err := edge(t, text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "MARK", text)
	}
	for _, text := range []string{"provider_credentials: [sk-MARK]", "provider_credentials: sk-MARK", "node: sk-MARK"} {
		err := configs.Unmarshal("node.yaml", []byte(text), &configv1.NodeConfig{})
		require.ErrorContains(t, err, "(not shown)", text)
		require.NotContains(t, err.Error(), "MARK", text)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"capacity", "cancel", "cancel_grace_ms", "id"}
	for word, want := range map[string]string{"capacty": "capacity", "cpaacity": "capacity", "Capacity": "capacity", "cancle": "cancel", "di": "id", "idd": "id", "priority": "", "": "", "x": ""} {
		got, _ := configs.Nearest(word, names)
		require.Equal(t, want, got, word)
	}
	_, ok := configs.Nearest(strings.Repeat("a", 10_000), []string{strings.Repeat("a", 10_000)})
	require.False(t, ok, "long words are not compared")
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(configs.EdgeExample))
	f.Add([]byte("edge: &e {tls: *e}\n---\n"))
	f.Add([]byte("? [a]\n: {<<: *b}\n"))
	f.Add([]byte("edge: !!binary |\n  R0l\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg := &configv1.EdgeConfig{}
		err := configs.Unmarshal("f", text, cfg)
		lines := bytes.Count(text, []byte("\n")) + 2
		var problems configs.Problems
		if errors.As(err, &problems) {
			if len(problems) == 0 {
				t.Fatal("an error without problems")
			}
			for _, p := range problems {
				if p.Line < 1 || p.Column < 1 || p.Line > lines || p.Message == "" {
					t.Fatalf("no such place: %+v", p)
				}
			}
		} else if err != nil {
			t.Fatalf("an error of type %T", err)
		}
	})
}
