package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rewrite brings the tables up to date instead of checking them: make traceability.
var rewrite = flag.Bool("rewrite", false, "rewrite the tables of docs/traceability.md")

const traceability = "docs/traceability.md"

var (
	declared = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	ids      = regexp.MustCompile(`^Test((?:Case_|[A-Z][0-9]{2,3}_)+)`)
	row      = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]{2,3}) \| ([^|\n]*) \| ([^|\n]*) \|$`)
	listed   = regexp.MustCompile("`(Test[A-Za-z0-9_/]+)`")
	scripted = regexp.MustCompile(`^(.+)/testdata/([A-Z][0-9]{2,3})\.txt$`)
	cases    = regexp.MustCompile(`(?s)(<!-- cases -->\n).*?(<!-- end -->)`)
)

// traced is the tests that carry ids in their name, by id ("S01", "case A10")
// and then by folder.
type traced map[string]map[string][]string

func (tr traced) add(key, dir, test string) {
	if tr[key] == nil {
		tr[key] = map[string][]string{}
	}
	tr[key][dir] = append(tr[key][dir], test)
}

// column is how a table shows the tests of one id.
func (tr traced) column(key string) string {
	var out []string
	dirs := tr[key]
	for _, dir := range sortedKeys(dirs) {
		slices.Sort(dirs[dir])
		out = append(out, fmt.Sprintf("%s: `%s`", dir, strings.Join(dirs[dir], "` `")))
	}
	if len(out) == 0 {
		return "none yet"
	}
	return strings.Join(out, " · ")
}

// TestTraceability_NamesTestsThatExist keeps docs/traceability.md from naming
// tests that have gone. New tests get in by `make traceability`.
func TestTraceability_NamesTestsThatExist(t *testing.T) {
	found, all := tracedTests(t)
	file := filepath.Join(root, traceability)
	text, err := os.ReadFile(file)
	require.NoError(t, err)

	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(rewritten(string(text), found)), 0o644))
		return
	}
	require.NotEmpty(t, row.FindAllString(string(text), -1))
	for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
		assert.True(t, all[m[1]], "%s names %s, which does not exist; run make traceability", traceability, m[1])
	}
	if want := rewritten(string(text), found); want != string(text) {
		t.Logf("%s does not list every test yet; run make traceability", traceability)
	}
}

func TestRewritten(t *testing.T) {
	found := traced{}
	found.add("S01", "edge/a", "TestS01_B")
	found.add("S01", "edge/a", "TestS01_A")
	found.add("case A10", "e2e", "TestCase_A10_X")
	got := rewritten("| S01 | title | old |\n| S02 | other | old |\n<!-- cases -->\nold\n<!-- end -->\n", found)
	assert.Equal(t, "| S01 | title | edge/a: `TestS01_A` `TestS01_B` |\n| S02 | other | none yet |\n"+
		"<!-- cases -->\n| case | tests |\n| --- | --- |\n| A10 | e2e: `TestCase_A10_X` |\n<!-- end -->\n", got)
}

func TestKeysOf(t *testing.T) {
	for carried, want := range map[string][]string{
		"S01_L05_":      {"S01", "L05"},
		"Case_A10_L05_": {"case A10", "case L05"},
		"S06_Case_C02_": {"S06", "case C02"},
		"Case_C19_S14_": {"case C19", "S14"},
	} {
		assert.Equal(t, want, keysOf(carried))
	}
}

// keysOf tells the ids in a test's name apart: behind "Case" stand cases, but
// for scenarios and routes, whose letters no case has.
func keysOf(carried string) (keys []string) {
	kind := ""
	for id := range strings.SplitSeq(strings.TrimSuffix(carried, "_"), "_") {
		switch {
		case id == "Case":
			kind = "case "
		case id[0] == 'S' || id[0] == 'R':
			keys = append(keys, id)
		default:
			keys = append(keys, kind+id)
		}
	}
	return keys
}

// rewritten fills the last column of the rows, which keep their order and
// titles, and replaces the table of cases.
func rewritten(text string, found traced) string {
	text = row.ReplaceAllStringFunc(text, func(line string) string {
		m := row.FindStringSubmatch(line)
		return fmt.Sprintf("| %s | %s | %s |", m[1], m[2], found.column(m[1]))
	})
	table := "| case | tests |\n| --- | --- |\n"
	for _, key := range sortedKeys(found) {
		if id, isCase := strings.CutPrefix(key, "case "); isCase {
			table += fmt.Sprintf("| %s | %s |\n", id, found.column(key))
		}
	}
	return cases.ReplaceAllString(text, "${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}")
}

// tracedTests reads the names of all tests of the tree.
func tracedTests(t *testing.T) (found traced, all map[string]bool) {
	t.Helper()
	found, all = traced{}, map[string]bool{}
	tree := os.DirFS(root)
	require.NoError(t, fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		// A script named by an id is a subtest of the package's TestScenarios.
		if m := scripted.FindStringSubmatch(name); m != nil {
			test := "TestScenarios/" + m[2]
			all[test] = true
			found.add(m[2], m[1], test)
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllSubmatch(source, -1) {
			test := string(m[1])
			all[test] = true
			carried := ids.FindStringSubmatch(test)
			if carried == nil {
				continue
			}
			for _, key := range keysOf(carried[1]) {
				found.add(key, path.Dir(name), test)
			}
		}
		return nil
	}))
	require.NotEmpty(t, all)
	return found, all
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
