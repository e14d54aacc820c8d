package metrics

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The document lists every series there is, and no other; the examples use none that is not there.
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

	for _, path := range []string{"../../configs/grafana/iop.json", "../../configs/prometheus/alerts.yaml"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var any map[string]any
		require.NoError(t, yaml.Unmarshal(text, &any), path) // JSON is YAML
		used := regexp.MustCompile(`iop_[a-z_]+`).FindAllString(string(text), -1)
		require.NotEmpty(t, used)
		for _, series := range used {
			require.Contains(t, have, strings.TrimSuffix(series, "_bucket"), path)
		}
	}
}
