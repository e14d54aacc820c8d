package metrics

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// The document lists every series there is, and no other.
func TestEverySeriesIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(iop_[a-z_]+)`").FindAllSubmatch(text, -1) {
		documented = append(documented, string(m[1]))
	}
	m := New("v", func() State { return State{} }, nil)
	descs := make(chan *prometheus.Desc, 500)
	m.registry.Describe(descs)
	close(descs)
	var have []string
	name := regexp.MustCompile(`fqName: "(iop_[a-z_]+)"`)
	for d := range descs {
		if found := name.FindStringSubmatch(d.String()); found != nil {
			have = append(have, found[1])
		}
	}
	require.NotEmpty(t, have)
	require.ElementsMatch(t, have, documented)
}
