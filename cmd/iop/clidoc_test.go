package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

var cliDoc = filepath.Join("..", "..", "docs", "cli.md")

// example is a fenced block of the document, and the name before it.
var example = regexp.MustCompile("(?s)<!-- example: ([a-z0-9-]+) -->\n```\n(.*?)```\n")

// exampleText is what the commands print, by the names of the document.
func exampleText(t *testing.T, name string) string {
	t.Helper()
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	made := map[string]shown{
		"cancel": cancelled(&adminv1.CancelRequestResponse{EnqueueSeq: 7, RequestId: "req-batch-2", State: "waiting"}),
		"drain":  overrideResult{Subject: "gx10/vllm", Mode: "draining", Since: &since, By: "me", InFlight: 3, Durable: true}.shown(),
		"reload": reloadResult{
			Revision: 13, Changes: list([]string{"nodes[gx10].providers[vllm].capacity: 4 -> 2"}),
			NeedsRestart: list([]string{"edge.insecure_h2c: false -> true"}), Warnings: list(nil),
		}.shown(),
		"dry-run": dryRunResult{
			Errors:  list([]string{`/etc/iop/edge.yaml:14:7: unknown key "capacty" (did you mean "capacity"?)`}),
			Changes: list(nil), NeedsRestart: list(nil), Warnings: list(nil),
		}.shown(),
		"estimate":   forgotten(3),
		"key-create": keyMade(&adminv1.CreateKeyResponse{Secret: "iop-key-5OnDMgOa8vS0HXkRYrhp1wnXmCB9EXAMPLEvFDtxQ", Key: laptopKey(), AskedFor: true}),
		"key-list": listedKeys(&adminv1.ListKeysResponse{AskedFor: true, Keys: []*adminv1.ApiKey{
			{Name: "ci", Source: "file", Running: 2}, laptopKey(),
		}}),
		"key-revoke": keyRevoked("laptop", &adminv1.RevokeKeyResponse{Durable: true, Running: 1}),
		"node-token-create": joinTokenMade(&adminv1.CreateJoinTokenResponse{Secret: "iop-join-Rk0cJf2LZ1q9yW3sT7uVbNEXAMPLE4hGmXaPdKeQo", Token: &adminv1.JoinToken{
			Id: "5f0c1b2a", Node: "mac-studio", Created: timestamppb.New(since), Expires: timestamppb.New(since.Add(24 * time.Hour)), By: "me",
		}}),
		"node-token-list": listedNodes(&adminv1.ListNodeCredentialsResponse{
			Nodes: []*adminv1.NodeCredential{
				{Node: "gx10", Source: "file", Connected: true},
				{Node: "nas", Source: "state", Since: timestamppb.New(since.Add(-time.Hour)), LastUsed: timestamppb.New(since.Add(-50 * time.Minute)), Connected: true, JoinedBy: "0a1b2c3d"},
				{Node: "mac-studio"},
			},
			JoinTokens: []*adminv1.JoinToken{{Id: "5f0c1b2a", Node: "mac-studio", Created: timestamppb.New(since), Expires: timestamppb.New(since.Add(24 * time.Hour)), By: "me"}},
		}),
		"node-token-revoke": nodeRevoked("nas", &adminv1.RevokeNodeResponse{Credential: true, WasConnected: true, Durable: true}),
	}
	if s, ok := made[name]; ok {
		return strings.Join(s.text(80), "\n") + "\n"
	}
	var out bytes.Buffer
	if s, ok := made[strings.TrimSuffix(name, "-json")]; ok {
		require.NoError(t, writeJSON(&out, s.json))
		return out.String()
	}
	if name == "requests-json" {
		text, err := os.ReadFile(filepath.Join("console", "testdata", "busy.json"))
		require.NoError(t, err)
		s := &controlv1.EdgeNodeSnapshot{}
		require.NoError(t, protojson.Unmarshal(text, s))
		s.Requests = s.Requests[5:6]
		all, err := listOf(s, false)
		require.NoError(t, err)
		require.NoError(t, writeJSON(&out, all))
		return out.String()
	}
	for _, folder := range []string{"console", "top"} {
		if text, err := os.ReadFile(filepath.Join(folder, "testdata", name+".txt")); err == nil {
			return strings.ReplaceAll(string(text), "\r\n", "\n")
		}
	}
	require.FailNow(t, "no such example", name)
	return ""
}

func laptopKey() *adminv1.ApiKey {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &adminv1.ApiKey{Name: "laptop", Source: "state", Created: timestamppb.New(created), By: "me", Models: []string{"qwen3-32b"}, MaxConcurrent: 4}
}

// The examples of docs/cli.md are what the commands print.
func TestU20_TheExamplesOfTheCommandsAreWhatTheyPrint(t *testing.T) {
	text, err := os.ReadFile(cliDoc)
	require.NoError(t, err)
	doc := strings.ReplaceAll(string(text), "\r\n", "\n")
	require.Len(t, example.FindAllString(doc, -1), strings.Count(doc, "<!-- example: "))
	now := example.ReplaceAllStringFunc(doc, func(block string) string {
		name := example.FindStringSubmatch(block)[1]
		return "<!-- example: " + name + " -->\n```\n" + exampleText(t, name) + "```\n"
	})
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven's
		require.NoError(t, os.WriteFile(cliDoc, []byte(now), 0o600))
		return
	}
	require.Equal(t, now, doc, "go test ./cmd/iop -run TestU20_TheExamples -args -rewrite brings docs/cli.md up to date")
}

// docs/cli.md names every command, and every flag.
func TestU20_EveryCommandAndFlagIsDocumented(t *testing.T) {
	text, err := os.ReadFile(cliDoc)
	require.NoError(t, err)
	doc := string(text)
	root := newRoot(io.Discard, io.Discard)
	root.InitDefaultCompletionCmd()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			require.Regexp(t, `--`+f.Name+`\b`, doc, "flag of %s: describe it in docs/cli.md", c.CommandPath())
		})
		if !c.HasSubCommands() {
			require.Regexp(t, regexp.QuoteMeta(c.CommandPath())+`\b`, doc, "describe it in docs/cli.md")
		}
	}
	walk(root)
}
