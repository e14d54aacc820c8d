package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	target  = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	making  = regexp.MustCompile("(?m)(?:`|^)make ([a-z0-9-]+)")
)

// root is the top of the tree, seen from here.
var root = filepath.Join("..", "..")

// documents is every document of the tree, by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	add := func(name string) {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		docs[name] = string(text)
	}
	add("README.md")
	add("CONTRIBUTING.md")
	require.NoError(t, fs.WalkDir(os.DirFS(root), "docs", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(name) == ".md" {
			add(name)
		}
		return err
	}))
	return docs
}

func TestS10_LinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	docs := documents(t)
	for name, text := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			to := m[1]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(to, "#")
			path := name
			if file != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			_, err := os.Stat(filepath.Join(root, path))
			if !assert.NoError(t, err, "%s: (%s) leads nowhere", name, to) {
				continue
			}
			if anchor != "" {
				assert.Contains(t, anchors(docs[path]), anchor, "%s: (%s) names no heading", name, to)
			}
		}
	}
}

func TestDocumentsNameMakeTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	require.True(t, targets["test"])
	for name, text := range documents(t) {
		for _, m := range making.FindAllStringSubmatch(text, -1) {
			assert.True(t, targets[m[1]], "%s names `make %s`, which the Makefile does not have", name, m[1])
		}
	}
}

// anchors is the headings of a document as links name them.
func anchors(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		out = append(out, slug(m[1]))
	}
	return out
}

// slug is how forges turn a heading into an anchor: lower case, punctuation
// dropped, spaces to hyphens.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', 'a' <= r && r <= 'z', '0' <= r && r <= '9', r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

func TestSlug(t *testing.T) {
	assert.Equal(t, "offline-s14", slug("Offline (S14)"))
	assert.Equal(t, []string{"a-b"}, anchors("# A b\n```\n# no heading\n```\n"))
}
