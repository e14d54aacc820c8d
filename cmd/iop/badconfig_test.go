package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
)

// hashes stand in the file of bad configurations for valid ones.
var hashes = strings.NewReplacer(
	"$A", strings.Repeat("a1", 32),
	"$B", strings.Repeat("b2", 32),
	"$NOTHING", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
)

// Each bad file is refused with texts that say where, what was found and what is
// allowed, all at once, and never a secret.
func TestBadConfigurations(t *testing.T) {
	require.GreaterOrEqual(t, badConfigurations(t, "testdata/badconfig.txt"), 60)
}

func TestBadConfigurationsOfAControlPlane(t *testing.T) {
	require.GreaterOrEqual(t, badConfigurations(t, "testdata/badcontrolplane.txt"), 12)
}

// badConfigurations returns how many files the cases have.
func badConfigurations(t *testing.T, path string) (cases int) {
	t.Helper()
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		cases++
		text := hashes.Replace(d.Input)
		switch {
		case d.HasArg("escaped"):
			var err error
			text, err = strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
			require.NoError(t, err)
		case d.HasArg("huge"):
			text = "edge: {id: home}\n" + strings.Repeat("# a comment\n", configs.MaxFileBytes/10)
		case d.HasArg("bomb"):
			text = "nodes:\n  - &n\n    id: gx10\n    token_sha256: a1\n    providers: [" +
				strings.Repeat("{id: p}, ", 1000) + "]\n" + strings.Repeat("  - *n\n", 200)
		}
		args, code := []string{"config", "check"}, exitFailed
		name := d.Cmd
		if run, found := strings.CutPrefix(d.Cmd, "run-"); found {
			args, code, name = []string{run}, exitRefused, run
		}
		file := write(t, name+".yaml", text)
		got, stdout, stderr := iop(t, append(args, "-c", file)...)
		require.Equal(t, code, got, "%s: %s%s", d.Pos, stdout, stderr)
		require.Empty(t, stdout, d.Pos)
		require.NotContains(t, stderr, "MARK", d.Pos)
		requireOrder(t, file, stderr)
		if lines := strings.SplitAfter(stderr, "\n"); len(lines) > 40 {
			stderr = strings.Join(lines[:3], "") + "and " + strconv.Itoa(len(lines)-4) + " more lines\n"
		}
		return strings.ReplaceAll(stderr, file, name+".yaml")
	})
	return cases
}

// requireOrder checks that each finding has a place, in the order of the file.
func requireOrder(t *testing.T, file, stderr string) {
	t.Helper()
	lines, last := 0, 0
	for line := range strings.SplitSeq(strings.TrimSpace(stderr), "\n") {
		place, found := strings.CutPrefix(line, file+":")
		if !found {
			continue
		}
		lines++
		row, rest, _ := strings.Cut(place, ":")
		n, err := strconv.Atoi(row)
		require.NoError(t, err, line)
		column, _, _ := strings.Cut(rest, ":")
		_, err = strconv.Atoi(column)
		require.NoError(t, err, line)
		require.GreaterOrEqual(t, n, last, "out of order: %s", line)
		last = n
	}
	require.NotZero(t, lines, stderr)
}
