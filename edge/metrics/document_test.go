package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/iop-dev/iop/edge/dispatch"
)

// series is one as the registry describes it.
type series struct {
	help      string
	labels    []string
	histogram bool
}

// described are all iop series of the registry.
func described(t *testing.T) map[string]series {
	t.Helper()
	m := New("v", func() State { return State{} }, nil)
	descs := make(chan *prometheus.Desc, 500)
	m.registry.Describe(descs)
	close(descs)
	form := regexp.MustCompile(`^Desc\{fqName: "(iop_[a-z_]+)", help: "([^"]*)", (?:unit: "", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	m.Ended(&dispatch.Ending{Grant: dispatch.Grant{Node: "n"}, FirstByte: 1})
	families, err := m.registry.Gather()
	require.NoError(t, err)
	histograms := map[string]bool{}
	for _, f := range families {
		histograms[f.GetName()] = f.GetType().String() == "HISTOGRAM"
	}
	have := map[string]series{}
	for d := range descs {
		found := form.FindStringSubmatch(d.String())
		if found == nil {
			require.NotContains(t, d.String(), "iop_", "a description of another form")
			continue
		}
		s := series{help: found[2], histogram: histograms[found[1]]}
		for _, l := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(found[3], -1) {
			s.labels = append(s.labels, l[1])
		}
		if found[4] != "" {
			s.labels = append(s.labels, strings.Split(found[4], ",")...)
		}
		have[found[1]] = s
	}
	require.NotEmpty(t, have)
	return have
}

// The document lists every series there is and no other, with its labels and what it says of itself.
func TestEverySeriesIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	documented := map[string]series{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(iop_[a-z_]+)` \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		s := series{}
		s.help, s.histogram = strings.CutPrefix(m[3], "Histogram. ")
		if m[2] != "–" {
			s.labels = strings.Split(strings.ReplaceAll(m[2], "`", ""), ", ")
		}
		require.NotContains(t, documented, m[1])
		documented[m[1]] = s
	}
	have := described(t)
	for name, s := range have {
		require.Contains(t, documented, name)
		require.Equal(t, s.help, documented[name].help, name)
		require.Equal(t, s.histogram, documented[name].histogram, name)
		require.ElementsMatch(t, s.labels, documented[name].labels, name)
	}
	for name := range documented {
		require.Contains(t, have, name)
	}
}

// query is an expression of the examples, and the labels that its texts are made of.
type query struct {
	expr  string
	shown []string
}

// exampleQueries are those of the dashboard and of the alert rules.
func exampleQueries(t *testing.T) (all []query) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	text, err := os.ReadFile("../../configs/grafana/iop.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	labels := func(form, text string) (out []string) {
		for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		return out
	}
	for _, p := range dashboard.Panels {
		require.NotEmpty(t, p.Targets)
		for _, target := range p.Targets {
			all = append(all, query{target.Expr, labels(`\{\{ *(\w+) *\}\}`, target.LegendFormat)})
		}
	}
	require.Len(t, all, strings.Count(string(text), `"expr"`), "an expression elsewhere than in a panel is not looked at")
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	text, err = os.ReadFile("../../configs/prometheus/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &alerts))
	n := len(all)
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			all = append(all, query{r.Expr, labels(`\$labels\.(\w+)`, r.Annotations["summary"])})
		}
	}
	require.Len(t, all[n:], strings.Count(string(text), "expr:"))
	return all
}

var (
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matchers = regexp.MustCompile(`(\w+)?\{([^}]*)\}`)
	rated    = regexp.MustCompile(`\b(?:rate|increase)\((\w+)`)
	words    = regexp.MustCompile(`[a-zA-Z_]\w*`)
)

// wrong says what a query asks for that is not there; empty if nothing. It knows the words that the examples need.
func (q query) wrong(have map[string]series) string {
	labelsOf := func(name string) (labels []string, ok bool) {
		s, ok := have[name]
		if ok && !s.histogram {
			return s.labels, true
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if s := have[strings.TrimSuffix(name, part)]; s.histogram && strings.HasSuffix(name, part) {
				if part == "_bucket" {
					return append(slices.Clone(s.labels), "le"), true
				}
				return s.labels, true
			}
		}
		return nil, false
	}
	rest := q.expr
	var by []string
	grouped := false
	for _, g := range grouping.FindAllStringSubmatch(rest, -1) {
		grouped = true
		by = append(by, regexp.MustCompile(`\w+`).FindAllString(g[1], -1)...)
	}
	rest = grouping.ReplaceAllString(rest, "")
	for _, m := range matchers.FindAllStringSubmatch(rest, -1) {
		labels, _ := labelsOf(m[1])
		for _, l := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) {
				return m[1] + " has no label " + l[1]
			}
		}
	}
	for _, r := range rated.FindAllStringSubmatch(rest, -1) {
		if !regexp.MustCompile(`_(total|bucket|sum|count)$`).MatchString(r[1]) {
			return r[1] + " is no counter, and has no rate"
		}
	}
	rest = regexp.MustCompile(`\{[^}]*\}|\[\w+\]`).ReplaceAllString(rest, "")
	var result []string
	n := 0
	for _, w := range words.FindAllString(rest, -1) {
		if slices.Contains([]string{"sum", "max", "rate", "increase", "histogram_quantile", "and"}, w) {
			continue
		}
		labels, ok := labelsOf(w)
		if !ok {
			return "there is no " + w
		}
		n++
		result = labels
		for _, l := range by {
			if !slices.Contains(labels, l) {
				return w + " has no label " + l
			}
		}
	}
	if n == 0 {
		return "no series"
	}
	if strings.Contains(rest, "histogram_quantile") && !slices.Contains(by, "le") {
		return "a quantile needs the buckets' le"
	}
	if grouped || strings.Contains(rest, "sum") || strings.Contains(rest, "max") {
		result = by
	}
	for _, l := range q.shown {
		if !slices.Contains(result, l) {
			return "the result has no label " + l
		}
	}
	return ""
}

// The dashboard and the alert rules ask for series, labels and rates that there are.
func TestTheExamplesAskForWhatIsThere(t *testing.T) {
	have := described(t)
	for _, q := range exampleQueries(t) {
		require.Empty(t, q.wrong(have), q.expr)
	}
}

func TestAQueryForWhatIsNotThereIsFound(t *testing.T) {
	have := described(t)
	for _, tt := range []struct {
		expr, shown, want string
	}{
		{expr: `sum by (outcome) (rate(iop_requests_total{model="m"}[5m]))`, shown: "outcome"},
		{expr: `iop_gone_total > 0`, want: "there is no iop_gone_total"},
		{expr: `iop_first_byte_seconds`, want: "there is no iop_first_byte_seconds"},
		{expr: `iop_in_flight_bucket`, want: "there is no iop_in_flight_bucket"},
		{expr: `iop_in_flight{model="m"}`, want: "iop_in_flight has no label model"},
		{expr: `sum by (scope) (iop_in_flight)`, want: "iop_in_flight has no label scope"},
		{expr: `rate(iop_in_flight[5m])`, want: "iop_in_flight is no counter, and has no rate"},
		{expr: `histogram_quantile(0.9, sum by (model) (rate(iop_first_byte_seconds_bucket[5m])))`, want: "a quantile needs the buckets' le"},
		{expr: `sum(iop_in_flight)`, shown: "node", want: "the result has no label node"},
		{expr: `iop_node_connected == 0`, shown: "provider", want: "the result has no label provider"},
		{expr: `1 > 0`, want: "no series"},
	} {
		q := query{expr: tt.expr}
		if tt.shown != "" {
			q.shown = []string{tt.shown}
		}
		require.Equal(t, tt.want, q.wrong(have), tt.expr)
	}
}
