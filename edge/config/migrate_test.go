package config

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
)

func TestS06_MigrationKeepsAllButTheLegacyValues(t *testing.T) {
	datadriven.RunTest(t, "testdata/migrate.txt", func(t *testing.T, d *datadriven.TestData) string {
		text := hashes.Replace(d.Input)
		m, err := Migrate("edge.yaml", []byte(text))
		if d.Cmd == "refuse" {
			require.Error(t, err)
			return err.Error() + "\n"
		}
		require.NoError(t, err, d.Pos)
		again, err := Migrate("edge.yaml", m.Text)
		require.NoError(t, err)
		require.Equal(t, string(m.Text), string(again.Text), "idempotent")
		require.Empty(t, again.Changes)
		s, err := Parse("edge.yaml", m.Text)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(s.Warnings, "\n"), "deprecated")
		shown := strings.NewReplacer(strings.Repeat("a1", 32), "$A", strings.Repeat("b2", 32), "$B").Replace(string(m.Text))
		return strings.Join(append(m.Changes, shown), "\n")
	})
}

func TestS06_MigrationKeepsLineEndsAndMark(t *testing.T) {
	text := "\xef\xbb\xbfedge: {id: a}\r\nnodes:\r\n  - id: n\r\n    token_sha256: " + strings.Repeat("a1", 32) +
		"\r\n    providers:\r\n      - id: p\r\n        max_queue: 8\r\n        type: simulator\r\n"
	m, err := Migrate("edge.yaml", []byte(text))
	require.NoError(t, err)
	want := strings.Replace(text, "        max_queue: 8\r\n", "", 1)
	want = strings.Replace(want, "nodes:", "provider_pool:\r\n  max_queue: 8\r\n\r\nnodes:", 1)
	require.Equal(t, want, string(m.Text))
}

func TestS06_MigrationRefusesLineBreaksThatItWouldMiscount(t *testing.T) {
	text := "edge: {id: a}\nnodes:\n  - id: n\n    token_sha256: " + strings.Repeat("a1", 32) +
		"\n    providers:\n      - id: p\n        max_queue: 8\n        type: simulator\n"
	for _, odd := range []string{"\r", "\u0085", "\u2028", "\u2029"} {
		_, err := Migrate("edge.yaml", []byte(strings.ReplaceAll(text, "\n", odd)))
		require.EqualError(t, err, "edge.yaml has line breaks that are neither LF nor CRLF: save it with either, then migrate it", "%q", odd)
	}
}

// Whatever is migrated means the same as before, or is refused.
func FuzzMigrate(f *testing.F) {
	f.Add([]byte("nodes:\n  - {id: n, token_sha256: " + strings.Repeat("a1", 32) + ", providers: [{id: p, type: simulator, max_queue: 8}]}\n"))
	f.Add([]byte(configs.EdgeExample))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("_file")) {
			t.Skip() // no files of this machine
		}
		m, err := Migrate("f", text)
		if err != nil {
			return
		}
		before, err := Parse("f", text)
		require.NoError(t, err)
		after, err := Parse("f", m.Text)
		require.NoError(t, err)
		require.Equal(t, before.Admission, after.Admission)
	})
}
