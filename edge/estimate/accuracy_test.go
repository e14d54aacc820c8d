package estimate_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/estimate/corpus"
)

// chat is a request with one message.
func chat(content string) []byte {
	b, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": content}}})
	if err != nil {
		panic(err)
	}
	return b
}

var samples = flag.Int("samples", 80, "texts of each kind that the estimate is judged by")

// quantile returns the value that a share q of the sorted values does not exceed.
func quantile(sorted []float64, q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }

// judged is a request whose tokens are known.
type judged struct {
	text  string
	body  []byte
	truth int
}

func (j judged) ratio(estimated int) float64 { return float64(estimated) / float64(j.truth) }

func judge(t *testing.T, counter corpus.Counter, kind corpus.Kind, n int, seed uint64) []judged {
	t.Helper()
	var list []judged
	for _, text := range kind.Samples(n, seed) {
		truth, err := counter.Tokens(text)
		require.NoError(t, err)
		list = append(list, judged{text, chat(text), truth})
	}
	return list
}

// judges returns the kinds of text and the tokenizers. IOP_ESTIMATE_CORPUS names a folder of more text files, for trying the table on what it was not
// fitted to.
func judges(t *testing.T) ([]corpus.Kind, corpus.Counter) {
	t.Helper()
	if raceEnabled {
		t.Skip("the tokenizers are slow under the race detector and have nothing to race with; make test runs this without it")
	}
	kinds, err := corpus.Kinds()
	require.NoError(t, err)
	counter, err := corpus.NewCounter()
	require.NoError(t, err)
	if dir := os.Getenv("IOP_ESTIMATE_CORPUS"); dir != "" {
		paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			kinds = append(kinds, corpus.Text(filepath.Base(path), true, string(text)))
		}
	}
	return kinds, counter
}

// TestL04_EstimateErrsUpwardsAndNotByMuch holds the estimate of each kind of text against real tokenizers: out of the box, and after 50 answers that
// told the truth.
func TestL04_EstimateErrsUpwardsAndNotByMuch(t *testing.T) {
	kinds, counter := judges(t)
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			limit := 2.5
			if kind.Smooth {
				limit = 1.6
			}
			calibration := estimate.NewCalibration()
			for _, j := range judge(t, counter, kind, 50, 3) {
				calibration.Observe("target", estimate.Of(j.body), j.truth)
			}
			var plain, calibrated []float64
			judged := judge(t, counter, kind, *samples, 2)
			for _, j := range judged {
				e := estimate.Of(j.body)
				plain = append(plain, j.ratio(e.Tokens()))
				calibrated = append(calibrated, j.ratio(calibration.Tokens([]string{"target"}, e)))
			}
			slices.Sort(plain)
			slices.Sort(calibrated)
			t.Logf("plain p1 %.2f p50 %.2f p95 %.2f; calibrated p1 %.2f p50 %.2f p95 %.2f", quantile(plain, 0.01), quantile(plain, 0.5), quantile(plain, 0.95),
				quantile(calibrated, 0.01), quantile(calibrated, 0.5), quantile(calibrated, 0.95))
			assert.GreaterOrEqual(t, quantile(plain, 0.01), 1.0)
			assert.LessOrEqual(t, quantile(plain, 0.95), limit)
			assert.GreaterOrEqual(t, quantile(calibrated, 0.01), 1.0)
			assert.LessOrEqual(t, quantile(calibrated, 0.95), 1.25)

			plainly, taught := confusionOf(judged, estimate.NewCalibration()), confusionOf(judged, calibration)
			t.Logf("around the threshold, of %d: %v; calibrated %v", aroundThreshold, plainly, taught)
			assert.Zero(t, plainly.longAsNormal+taught.longAsNormal)
		})
	}
}

const (
	// aroundThreshold is how many requests of a kind are classed.
	aroundThreshold = 200
	// threshold is that of the confusion tables: a low one, as long texts take the tokenizers long.
	threshold = 20000
)

// confusion counts requests of a half to one and a half times the threshold by what they are and what they are classed as.
type confusion struct{ normal, normalAsLong, long, longAsNormal int }

func (c confusion) String() string {
	return fmt.Sprintf("normal %d, taken for long %d; long %d, taken for normal %d", c.normal, c.normalAsLong, c.long, c.longAsNormal)
}

// confusionOf classes requests that are made of some of the texts.
func confusionOf(texts []judged, calibration *estimate.Calibration) (c confusion) {
	r := rand.New(rand.NewPCG(7, 7))
	for i := range aroundThreshold {
		var content strings.Builder
		truth := 0
		for truth < threshold/2+threshold*i/aroundThreshold {
			j := texts[r.IntN(len(texts))]
			content.WriteString(j.text)
			truth += j.truth
		}
		class := calibration.Input(chat(content.String()), []string{"target"}, threshold).Class()
		switch isLong := truth >= threshold; {
		case isLong:
			c.long++
			if class != admission.Long {
				c.longAsNormal++
			}
		default:
			c.normal++
			if class == admission.Long {
				c.normalAsLong++
			}
		}
	}
	return c
}
