package openai

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
)

// L04: what a provider counts for whole answers tightens the estimate, under the name that it serves the model by, in every form in which it is told.
func TestL04_WholeAnswersCalibrateTheEstimate(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("Explain how the gate keeps two long prompts apart. ", 60) + `"}]}`
	lost := lostProvider(&grant, true, "gone")
	for _, c := range []struct {
		name   string
		answer func(counted int) doFunc
		learns bool
	}{
		{"whole", func(n int) doFunc {
			return answer(whole(200, "application/json", fmt.Sprintf(`{"model":"served","choices":[],"usage":{"prompt_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, n, n-1)))
		}, true},
		{"responses", func(n int) doFunc {
			return answer(whole(200, "application/json", fmt.Sprintf(`{"model":"served","output":[],"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d}}}`, n, n-1)))
		}, true},
		{"stream", func(n int) doFunc {
			return answer(ended(events(delta, finish, fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d}}\n\n", n), done))...)
		}, true},
		{"stream that is lost", func(n int) doFunc {
			return answer(events(delta, fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d}}\n\n", n))...).then(lost)
		}, false},
		{"error", func(n int) doFunc {
			return answer(whole(400, "application/json", fmt.Sprintf(`{"error":{},"usage":{"prompt_tokens":%d}}`, n)))
		}, false},
		{"stream of an error", func(n int) doFunc {
			return answer(dispatch.Frame{Head: head(500, "text/event-stream"), Body: fmt.Appendf(nil, "data: {\"usage\":{\"prompt_tokens\":%d}}\n\n", n), End: true})
		}, false},
		{"no usage", func(int) doFunc { return answer(whole(200, "application/json", `{"model":"served"}`)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var last *dispatch.Request
			counted := 0
			d := doFunc(func(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
				last = r
				return c.answer(counted)(ctx, r, s)
			})
			s := settings()
			s.Models[0].Targets = []string{grant.Target}
			over(t, d, s, func(r *rig) {
				counted = 0
				r.chat(body)
				plain := last.Input // of which nothing was told yet
				require.Equal(r, plain.Estimate.Tokens(), plain.Tokens)
				counted = plain.Tokens * 7 / 10
				for range 50 {
					r.chat(body)
				}
				r.chat(body)
				require.Equal(r, plain.Estimate, last.Input.Estimate)
				if !c.learns {
					require.Equal(r, plain.Tokens, last.Input.Tokens)
					require.Empty(r, r.calibration.Scales(1))
					return
				}
				require.Less(r, last.Input.Tokens, plain.Tokens*8/10)
				require.GreaterOrEqual(r, last.Input.Tokens, counted)
				require.Equal(r, grant.Target, r.calibration.Scales(1)[0].Target)
			})
		})
	}
}
