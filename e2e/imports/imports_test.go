package imports_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/imports"
)

const module = "github.com/iop-dev/iop"

// TestModule_KeepsTheImportDirections holds the rules against the module as it is.
func TestModule_KeepsTheImportDirections(t *testing.T) {
	g := moduleGraph(t)
	require.Contains(t, g, "edge/admission", "the graph is the module's")
	for _, b := range imports.Check(g, imports.Rules) {
		t.Error(b)
	}
}

func TestModule_HasNoVaguePackageNames(t *testing.T) {
	for p := range moduleGraph(t) {
		if isOwn(p) {
			assert.NotContains(t, imports.VagueNames, path.Base(p), "package %s", p)
		}
	}
}

// TestRules_CanFail breaks each rule on a made-up graph, directly and (where the
// rule follows chains) behind a package that no rule speaks of.
func TestRules_CanFail(t *testing.T) {
	for _, rule := range imports.Rules {
		from, ban := example(rule.From[0]), example(rule.Ban[0])
		t.Run(from+" imports "+ban, func(t *testing.T) {
			assert.NotEmpty(t, rule.Reason)
			only := []imports.Rule{rule}

			direct := imports.Check(imports.Graph{from: {ban}}, only)
			require.Len(t, direct, 1)
			assert.Equal(t, []string{from, ban}, direct[0].Chain)

			chained := imports.Check(imports.Graph{from: {"example.com/between"}, "example.com/between": {ban}}, only)
			if rule.Direct {
				return
			}
			require.NotEmpty(t, chained)
			assert.Contains(t, chained[0].Chain, ban)
		})
	}
}

func TestCheck(t *testing.T) {
	edge := imports.Rule{From: []string{"edge/..."}, Ban: []string{"services/..."}, Reason: "because"}
	for name, c := range map[string]struct {
		graph imports.Graph
		rule  func(*imports.Rule)
		want  []string
	}{
		"an innocent graph": {
			graph: imports.Graph{"edge/a": {"edge/b", "fmt"}, "edge/b": {"io"}, "services/x": {"edge/a"}},
		},
		"direct": {
			graph: imports.Graph{"edge/a": {"services/x"}},
			want:  []string{"edge/a -> services/x"},
		},
		"through another package": {
			graph: imports.Graph{"edge/a": {"mid"}, "mid": {"services/x"}},
			want:  []string{"edge/a -> mid -> services/x"},
		},
		"the shortest chain of two": {
			graph: imports.Graph{"edge/a": {"long", "short"}, "long": {"longer"}, "longer": {"services/x"}, "short": {"services/x"}},
			want:  []string{"edge/a -> short -> services/x"},
		},
		"in a test": {
			graph: imports.Graph{"edge/a_test": {"services/x"}},
			want:  []string{"edge/a_test -> services/x"},
		},
		"a folder of a like name is another one": {
			graph: imports.Graph{"edges/a": {"services/x"}, "edge/a": {"servicesx/y"}},
		},
		"the root of a pattern is meant, too": {
			graph: imports.Graph{"edge": {"services"}},
			want:  []string{"edge -> services"},
		},
		"direct rules follow no chain": {
			graph: imports.Graph{"edge/a": {"mid"}, "mid": {"services/x"}},
			rule:  func(r *imports.Rule) { r.Direct = true },
		},
		"excepted importers": {
			graph: imports.Graph{"edge/a": {"services/x"}, "edge/b": {"services/x"}},
			rule:  func(r *imports.Rule) { r.FromExcept = []string{"edge/a"} },
			want:  []string{"edge/b -> services/x"},
		},
		"excepted imports": {
			graph: imports.Graph{"edge/a": {"services/x", "services/y"}},
			rule:  func(r *imports.Rule) { r.BanExcept = []string{"services/x"} },
			want:  []string{"edge/a -> services/y"},
		},
		"an excepted import is still followed": {
			graph: imports.Graph{"edge/a": {"services/x"}, "services/x": {"services/y"}},
			rule:  func(r *imports.Rule) { r.BanExcept = []string{"services/x"} },
			want:  []string{"edge/a -> services/x -> services/y"},
		},
		"not behind a package that hides it": {
			graph: imports.Graph{"edge/a": {"edge/b"}, "edge/b": {"services/x"}},
			rule:  func(r *imports.Rule) { r.FromExcept = []string{"edge/b"}; r.Through = []string{"edge/b"} },
		},
		"cycles end": {
			graph: imports.Graph{"edge/a": {"edge/b"}, "edge/b": {"edge/a", "services/x"}},
			want:  []string{"edge/a -> edge/b -> services/x", "edge/b -> services/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := edge
			if c.rule != nil {
				c.rule(&rule)
			}
			var got []string
			for _, b := range imports.Check(c.graph, []imports.Rule{rule}) {
				got = append(got, strings.Join(b.Chain, " -> "))
				assert.Contains(t, b.String(), "because")
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// example turns a pattern into a path that matches it.
func example(pattern string) string {
	switch prefix, below := strings.CutSuffix(pattern, "..."); {
	case !below:
		return pattern
	case prefix == "":
		return "example.com/anything"
	default:
		return prefix + "example"
	}
}

// moduleGraph is the import graph of the module and all it depends on. The tests
// of a package count as a package of their own, "edge/broker_test".
func moduleGraph(t *testing.T) imports.Graph {
	t.Helper()
	dependOnSources(t)
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-tags=engines", "-deps", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	list.Stderr = &stderr
	out, err := list.Output()
	require.NoError(t, err, "go list: %s", stderr.String())

	g := imports.Graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		err := dec.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return g
		}
		require.NoError(t, err)
		name := relative(pkg.ImportPath)
		g[name] = relatives(pkg.Imports)
		if tests := slices.Concat(pkg.TestImports, pkg.XTestImports); len(tests) > 0 {
			// A package's outer tests import the package itself.
			g[name+"_test"] = slices.DeleteFunc(relatives(tests), func(p string) bool { return p == name })
		}
	}
}

// dependOnSources looks at every Go file of the module, so that `go test` does not
// take an earlier result for this one: it knows what a test itself looks at, not
// what the `go list` it starts reads.
func dependOnSources(t *testing.T) {
	t.Helper()
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since its folder was read
		case err != nil:
			return err
		case entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case filepath.Ext(name) == ".go":
			_, err = os.Stat(name)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		return nil
	}))
}

func relatives(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = relative(p)
	}
	return out
}

func relative(p string) string { return strings.TrimPrefix(p, module+"/") }

// isOwn tells the module's packages, which have been made relative, from others:
// those of the module live in its own top folders, none of which Go has.
func isOwn(p string) bool {
	top, _, _ := strings.Cut(p, "/")
	return slices.Contains([]string{"cmd", "configs", "e2e", "edge", "fleet", "gen", "node", "proto", "services"}, top)
}
