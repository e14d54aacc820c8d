package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
)

// TestU06_EveryReasonHasAPage: docs/reasons.md has a section for each code, from the strongest obstacle to the weakest.
func TestU06_EveryReasonHasAPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reasons.md"))
	require.NoError(t, err)
	var sections, codes []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, m[1])
	}
	for r := admission.ReasonNone + 1; r <= admission.ReasonBehind; r++ {
		codes = append(codes, r.String())
	}
	require.Equal(t, codes, sections)
}
