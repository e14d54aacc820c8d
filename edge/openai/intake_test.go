package openai

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/intake"
)

// Large bodies that come slowly share one budget: whoever finds it used up is
// shed before memory is taken for it, small requests are served, and those that
// had room go on.
func TestSlowUploadsAreBoundedTogether(t *testing.T) {
	const large, fit = 4 * mib, 4
	s := settings()
	s.BodyLimit = large + mib
	s.Intake = new(intake.Budget)
	s.Intake.Limit(fit*(large+1) + mib/2)
	over(t, answer(whole(200, "application/json", `{}`)), s, func(r *rig) {
		text := string(bigBody(r, large, "a long one "))
		text += strings.Repeat(" ", large-len(text))
		begin := func() (*io.PipeWriter, <-chan reply) {
			body, sent := io.Pipe()
			req := r.request(http.MethodPost, "/v1/chat/completions", "", "Content-Type", "application/json")
			req.Body, req.ContentLength = body, large
			done := make(chan reply, 1)
			go func() {
				res, err := r.client.Do(req)
				body.CloseWithError(io.ErrClosedPipe)
				if err != nil {
					done <- reply{err: err}
					return
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				done <- reply{res, string(text), err}
			}()
			return sent, done
		}
		const half = large / 2 // more than the first buffer: by then the room of all of it is taken
		var sending []*io.PipeWriter
		var answers []<-chan reply
		for n := range int64(fit) {
			sent, done := begin()
			_, err := io.WriteString(sent, text[:half])
			require.NoError(r, err)
			require.Eventually(r, func() bool { return s.Intake.Held() == (n+1)*(large+1) }, 10*time.Second, time.Millisecond)
			sending, answers = append(sending, sent), append(answers, done)
		}
		for range 4 {
			sent, done := begin()
			r.requireError(<-done, 503, "draining", "server_error")
			require.NoError(r, sent.Close())
		}
		require.LessOrEqual(r, s.Intake.Held(), int64(fit*(large+1)), "nothing is kept for those who were shed")
		require.Equal(r, 200, r.chat(hello).StatusCode, "a small one is served")
		for i, sent := range sending {
			_, err := io.WriteString(sent, text[half:])
			require.NoError(r, err)
			require.NoError(r, sent.Close())
			got := <-answers[i]
			require.NoError(r, got.err)
			require.Equal(r, 200, got.StatusCode, got.body)
		}
		require.Zero(r, s.Intake.Held())
	})
}
