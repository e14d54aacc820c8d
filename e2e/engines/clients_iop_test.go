//go:build engines

package engines

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/tap"
)

// eachLibrary runs a test once per client library.
func eachLibrary(t *testing.T, test func(t *testing.T, lib library)) {
	for _, lib := range libraries() {
		t.Run(lib.name(), func(t *testing.T) { test(t, lib) })
	}
}

// someStarts are those of a short, an empty and a longer answer.
var someStarts = []int{97, 500, 251}

func TestChat(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library) {
		for _, a := range askEach(t, lib, running.viaIOP(), modelGroups(), []bool{false}, someStarts) {
			assert.Positive(t, a.CompletionTokens)
			assert.NotEmpty(t, a.RequestID)
		}
	})
}

func TestStream(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library) {
		for _, a := range askEach(t, lib, running.viaIOP(), modelGroups(), []bool{true}, someStarts) {
			assert.Zero(t, a.CompletionTokens, "usage was not asked for")
			assert.NotEmpty(t, a.RequestID)
		}
	})
}

func TestStreamWithUsage(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library) {
		a, err := lib.ask(ctx, running.viaIOP(), call{Model: modelBig, Prompt: marked(t, 97), Stream: true, Usage: true})
		require.NoError(t, err)
		requireCounted(t, 97, modelBig, a)
		assert.Equal(t, 4, a.CompletionTokens, "three numbers and the end")
		assert.GreaterOrEqual(t, a.Chunks, 4, "a chunk for each number, and more")
	})
}

func TestCatalogue(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library) {
		ids, err := lib.models(ctx, running.viaIOP())
		require.NoError(t, err)
		assert.Equal(t, catalogue(), ids)
	})
}

// The refusals that a client meets first. Each is the error that the library has
// for it, the engine never hears of it, and the next call is answered.
func TestRefusals(t *testing.T) {
	wrongKey := running.viaIOP()
	wrongKey.key = secret()
	for _, c := range []struct {
		name   string
		at     endpoint
		models []string
		want   refusal
	}{
		{
			// The second is the name the engine knows, the third differs in case only.
			"unknown model", running.viaIOP(), []string{"ornith:36b", engineModel, "Ornith:35b"},
			refusal{Kind: "NotFoundError", Status: 404, Code: "model_not_found", Type: "invalid_request_error"},
		},
		{
			"wrong key", wrongKey, []string{modelBig},
			refusal{Kind: "AuthenticationError", Status: 401, Code: "invalid_api_key", Type: "authentication_error"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachLibrary(t, func(t *testing.T, lib library) {
				want, prompt := c.want, marked(t, 97)
				if (lib == openaiGo{}) {
					want.Kind = "*apierror.Error" // this library has one type for all
				}
				var calls []call
				for _, model := range c.models {
					calls = append(calls, call{Model: model, Prompt: prompt}, call{Model: model, Prompt: prompt, Stream: true})
				}
				refusals, err := lib.refused(ctx, c.at, calls)
				require.NoError(t, err)
				require.Len(t, refusals, len(calls))
				for _, got := range refusals {
					assert.NotEmpty(t, got.Message)
					assert.NotEmpty(t, got.RequestID)
					assert.NotContains(t, got.Message, c.at.key, "a key must not come back")
					got.Message, got.RequestID = "", ""
					assert.Equal(t, want, got)
				}
				assert.Empty(t, exchanges(prompt), "the engine must not hear of it")

				a, err := lib.ask(ctx, running.viaIOP(), call{Model: modelFast, Prompt: marked(t, 98)})
				require.NoError(t, err)
				requireCounted(t, 98, modelFast, a)
			})
		})
	}
}

// Both names called together, fifty times each, streams and plain calls mixed:
// every answer is that of its own question and carries the name it was asked by,
// although the engine, which would run several at once, never had more than one.
func TestS11_TwoModelsShareOneSlotOfARealEngine(t *testing.T) {
	const rounds = 50
	eachLibrary(t, func(t *testing.T, lib library) {
		var calls []call
		var starts []int
		var prompts []string
		for i := range rounds {
			for j, model := range modelGroups() {
				n := 2*i + j
				start := n%8*100 + 99 - n/8 // all different, answers of 1 to 13 numbers
				starts, prompts = append(starts, start), append(prompts, marked(t, start))
				calls = append(calls, call{Model: model, Prompt: marked(t, start), Stream: (i+j)%2 == 0})
			}
		}
		answers, err := lib.askAll(ctx, running.viaIOP(), calls)
		require.NoError(t, err)
		require.Len(t, answers, 2*rounds)
		for i, a := range answers {
			requireCounted(t, starts[i], calls[i].Model, a)
		}

		var seen []tap.Exchange
		for _, p := range prompts {
			one := exchanges(p)
			require.Len(t, one, 1, "each call reaches the engine once")
			seen = append(seen, one...)
		}
		assert.Equal(t, 1, tap.Peak(seen), "requests at the engine at once")
		requireIdle(t)
	})
}
