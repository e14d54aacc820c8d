package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheKoreanReadmeIsInStep: both have the same snippets, commands, sections and links; only the words between them differ.
func TestTheKoreanReadmeIsInStep(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(text)
	}
	english, korean := read("README.md"), read("README.ko.md")
	require.Equal(t, fence.FindAllString(english, -1), fence.FindAllString(korean, -1), "snippets")
	require.Len(t, heading.FindAllString(korean, -1), len(heading.FindAllString(english, -1)), "sections")
	command := regexp.MustCompile("(?m)^\\| (`iop .*?) \\| ")
	commands := func(text string) (all []string) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	require.NotEmpty(t, commands(english))
	require.Equal(t, commands(english), commands(korean))
	links := func(text string) map[string]bool {
		all := map[string]bool{}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "README") {
				all[m[1]] = true
			}
		}
		return all
	}
	require.Equal(t, links(english), links(korean))
}
