//go:build engines

package engines

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
	"github.com/iop-dev/iop/e2e/engines/tap"
)

// soon is how long something that happens at once may take on a busy machine.
const soon = 10 * time.Second

// runs numbers the tests, so that one that is run again (-count) finds only its
// own exchanges.
var (
	runs    sync.Map // *testing.T → int64
	lastRun atomic.Int64
)

// marked is a prompt that ends in start and by which the tap's exchanges of one
// test are found.
func marked(t *testing.T, start int) string {
	run, known := runs.Load(t)
	if !known {
		run, _ = runs.LoadOrStore(t, lastRun.Add(1))
	}
	return fmt.Sprintf("%s run %d go %d", t.Name(), run, start)
}

// exchanges is what the taps saw of the calls with this prompt.
func exchanges(prompt string) []tap.Exchange {
	var found []tap.Exchange
	for _, e := range slices.Concat(running.tap.Exchanges(), running.llamaTap.Exchanges()) {
		if bytes.Contains(e.Request, []byte(`"`+prompt+`"`)) {
			found = append(found, e)
		}
	}
	return found
}

// requireCounted checks one whole answer against the model's rule.
func requireCounted(t *testing.T, start int, model string, a answer) {
	t.Helper()
	require.Equal(t, countmodel.Answer(start, 1000), a.Text)
	require.Equal(t, "stop", a.Finish)
	require.Equal(t, []string{model}, a.Models)
}

// askEach asks for every combination, all at once, checks each answer and
// returns them.
func askEach(t *testing.T, lib library, at endpoint, models []string, streams []bool, starts []int) []answer {
	t.Helper()
	var calls []call
	var want []int
	for _, model := range models {
		for _, stream := range streams {
			for _, start := range starts {
				calls = append(calls, call{Model: model, Prompt: marked(t, start), Stream: stream})
				want = append(want, start)
			}
		}
	}
	answers, err := lib.askAll(ctx, at, calls)
	require.NoError(t, err)
	require.Len(t, answers, len(calls))
	for i, a := range answers {
		requireCounted(t, want[i], calls[i].Model, a)
	}
	return answers
}

// Everything else rests on this: the engine, asked without IOP, answers each
// library as the model's rules say. A failure here is not IOP's.
func TestEngineAloneAnswersAsPredicted(t *testing.T) {
	for _, lib := range libraries() {
		t.Run(lib.name(), func(t *testing.T) {
			askEach(t, lib, running.direct(), []string{engineModel}, []bool{false, true}, []int{97, 100, 799, 0})
			const start, limit = 990, 25
			a, err := lib.ask(ctx, running.direct(), call{Model: engineModel, Prompt: marked(t, start), MaxTokens: limit})
			require.NoError(t, err)
			assert.Equal(t, countmodel.Answer(start, limit), a.Text)
			assert.Equal(t, "length", a.Finish)
		})
	}
}

// Without IOP the engine runs calls at once, and the tap sees it: the peak of 1
// that other tests find behind IOP is therefore IOP's doing.
func TestEngineAloneRunsCallsAtOnce(t *testing.T) {
	prompt := marked(t, 990)
	var calls []call
	for range engineParallel {
		calls = append(calls, call{Model: engineModel, Prompt: prompt, MaxTokens: 200})
	}
	_, err := openaiGo{}.askAll(ctx, running.direct(), calls)
	require.NoError(t, err)
	seen := exchanges(prompt)
	require.Len(t, seen, engineParallel)
	assert.Greater(t, tap.Peak(seen), 1)
}
