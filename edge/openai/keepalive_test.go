package openai

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
)

const every = 10 * time.Second

func commented() Settings {
	s := settings()
	s.Keepalive = every
	return s
}

// silent is a provider whose answers the test gives out one by one; nil hands the request off, an error ends it.
type silent struct {
	steps chan any
	taken chan struct{} // after each step
	err   error         // what Do returned
	ended chan struct{}
}

func newSilent() *silent {
	return &silent{steps: make(chan any), taken: make(chan struct{}), ended: make(chan struct{})}
}

type refusal struct{}

func (p *silent) Do(ctx context.Context, _ *dispatch.Request, s dispatch.Sink) (err error) {
	defer func() { p.err = err; close(p.ended) }()
	w := s.(dispatch.Watcher)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case step := <-p.steps:
			g := grant
			var end bool
			switch step := step.(type) {
			case nil:
				w.HandedOff(&g)
			case refusal:
				w.Refused()
			case error:
				return step
			case dispatch.Frame:
				if err := s.Frame(&g, &step); err != nil {
					return err
				}
				end = step.End
			}
			p.taken <- struct{}{}
			if end {
				return nil
			}
		}
	}
}

// step gives the next step and waits until it is done.
func (p *silent) step(step any) {
	p.steps <- step
	<-p.taken
}

// last gives the step that ends the request.
func (p *silent) last(step any) {
	p.steps <- step
	select {
	case <-p.taken:
	case <-p.ended: // the sink has refused it, or it was an error
	}
	<-p.ended
}

// exchange is one running stream.
type exchange struct {
	*rig
	*silent
	clock *clockwork.FakeClock
	reply chan reply
	body  chan string // a line each, as it comes
}

// open starts one request over each protocol.
func open(t *testing.T, s Settings, path, body string, test func(x *exchange)) {
	p := new(perRun)
	over(t, p, s, func(r *rig) {
		x := &exchange{rig: r, silent: newSilent(), clock: clockwork.NewFakeClock(), reply: make(chan reply, 1), body: make(chan string, 64)}
		p.now = x.silent
		r.handler.clock = x.clock
		go func() {
			defer close(x.body)
			res, err := r.client.Do(r.request(http.MethodPost, path, body))
			if err != nil {
				x.reply <- reply{err: err}
				return
			}
			defer res.Body.Close()
			all := new(strings.Builder)
			lines := bufio.NewReader(io.TeeReader(res.Body, all))
			for {
				line, err := lines.ReadString('\n')
				if line != "" {
					x.body <- line
				}
				if err != nil {
					if err == io.EOF {
						err = nil
					}
					x.reply <- reply{res, all.String(), err}
					return
				}
			}
		}()
		test(x)
	})
}

// perRun makes each run of over play its own provider.
type perRun struct{ now *silent }

func (p *perRun) Do(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
	return p.now.Do(ctx, r, s)
}

// pass lets d go by once n timers are armed.
func (x *exchange) pass(n int, d time.Duration) {
	x.Helper()
	require.NoError(x, x.clock.BlockUntilContext(x.Context(), n))
	x.clock.Advance(d)
}

// comment reads one comment as the client gets it.
func (x *exchange) comment() {
	x.Helper()
	require.Equal(x, ": keep-alive\n", <-x.body)
	require.Equal(x, "\n", <-x.body)
}

// A02: comments come only in the silence of a stream that somebody works on, and only between its events.
func TestCase_A01_A02_CommentsBetweenEvents(t *testing.T) {
	open(t, commented(), "/v1/chat/completions", streamed, func(x *exchange) {
		x.step(nil)
		x.pass(1, every-1) // before the provider's head
		x.clock.Advance(1)
		x.comment()
		x.pass(2, every)
		x.comment()
		x.step(dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(delta[:30])})
		x.pass(2, every) // in an event: nothing
		x.pass(2, every)
		require.NoError(x, x.clock.BlockUntilContext(x.Context(), 2))
		x.step(dispatch.Frame{Body: []byte(delta[30:])})
		x.pass(2, every-1) // not silent for long enough
		x.step(dispatch.Frame{Body: []byte(delta)})
		x.pass(2, every-1)
		x.pass(2, 1)
		for range 4 { // two events, a line and a blank one each
			<-x.body
		}
		x.comment()
		x.step(dispatch.Frame{Body: []byte(finish + done)})
		x.pass(2, every) // after the end marker: nothing
		x.last(dispatch.Frame{End: true})
		got := <-x.reply
		require.NoError(x, got.err)
		require.NoError(x, x.err)
		require.Equal(x, 200, got.StatusCode)
		require.Equal(x, comment+comment+asked(delta+delta)+comment+asked(finish)+done, got.body)
		require.Equal(x, "text/event-stream", got.Header.Get("Content-Type"))
		require.Equal(x, "no-cache", got.Header.Get("Cache-Control"))
		require.Equal(x, "no", got.Header.Get("X-Accel-Buffering"))
		require.Equal(x, "gx10", got.Header.Get("X-Iop-Node"))
	})
}

// The provider's own head comes first: its status and fields are as they are without comments.
func TestCommentsAfterTheProvidersHead(t *testing.T) {
	open(t, commented(), "/v1/messages", streamed, func(x *exchange) {
		x.step(nil)
		h := head(200, "text/event-stream; charset=utf-8", dispatch.Header{Name: "openai-version", Value: "7"})
		x.step(dispatch.Frame{Head: h})
		x.pass(1, every)
		x.comment()
		x.last(dispatch.Frame{Body: []byte(finish), End: true})
		got := <-x.reply
		require.NoError(x, got.err)
		require.Equal(x, "7", got.Header.Get("Openai-Version"))
		require.Equal(x, "text/event-stream; charset=utf-8", got.Header.Get("Content-Type"))
		require.Equal(x, comment+asked(finish), got.body)
	})
}

// However small the setting, no comment stands for a head within the time of a refusal; and none is sent while the request waits again.
func TestNo200HidesARefusal(t *testing.T) {
	s := commented()
	s.Keepalive = time.Millisecond
	open(t, s, "/v1/chat/completions", streamed, func(x *exchange) {
		x.step(nil)
		x.pass(1, refusalWindow-1)
		x.step(refusal{})
		x.clock.Advance(time.Hour) // in the queue
		x.step(nil)
		x.pass(1, refusalWindow-1)
		x.step(refusal{})
		x.last(&broker.QueueTimeoutError{Waited: time.Minute})
		x.requireError(<-x.reply, 503, "queue_timeout", "server_error")
	})
	open(t, s, "/v1/chat/completions", streamed, func(x *exchange) {
		x.step(nil)
		x.pass(1, refusalWindow-1)
		x.last(whole(400, "application/json", `{"error":{"message":"no","code":400}}`))
		got := <-x.reply
		require.Equal(x, 400, got.StatusCode)
		require.Equal(x, `{"error":{"message":"no","code":400}}`, got.body)
	})
}

// What comes after the first comment and is no stream is told in-band, and counts as failed.
func TestCase_A13_A14_ErrorsAfterTheFirstComment(t *testing.T) {
	gzip := dispatch.Header{Name: "content-encoding", Value: "gzip"}
	long := strings.Repeat("x", lateBody)
	for name, c := range map[string]struct {
		last    []any
		code    string
		kind    string
		message string
	}{
		"OpenAI's": {[]any{whole(400, "application/json", `{"error":{"message":"too long","type":"x_error","param":"p","code":"context_length_exceeded"}}`)},
			"context_length_exceeded", "x_error", "The provider answered with status 400: too long"},
		"llama.cpp's":   {[]any{whole(503, "application/json", `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)}, "provider_error", "unavailable_error", "The provider answered with status 503: Loading model"},
		"Ollama's":      {[]any{whole(404, "application/json", `{"error":"model not found"}`)}, "provider_error", "invalid_request_error", "The provider answered with status 404: model not found"},
		"vLLM's of old": {[]any{whole(400, "application/json", `{"object":"error","message":"no","code":400}`)}, "provider_error", "invalid_request_error", "The provider answered with status 400: no"},
		"FastAPI's":     {[]any{whole(429, "application/json", `{"detail":"slow down"}`)}, "provider_error", "rate_limit_error", "The provider answered with status 429: slow down"},
		"text":          {[]any{whole(500, "text/plain", " oops\n")}, "provider_error", "server_error", "The provider answered with status 500: oops"},
		"nothing":       {[]any{whole(502, "", "")}, "provider_error", "server_error", "The provider answered with status 502"},
		"a lot":         {[]any{dispatch.Frame{Head: head(500, "text/html"), Body: []byte(long)}, dispatch.Frame{Body: []byte(long)}, dispatch.Frame{End: true}}, "provider_error", "server_error", "The provider answered with status 500"},
		"a plain answer": {[]any{whole(200, "application/json", `{"id":1}`)}, "provider_error", "server_error",
			"The provider answered with status 200 and application/json instead of a stream of events. It can be passed on only while openai.keepalive_ms is 0."},
		"an encoded stream": {[]any{dispatch.Frame{Head: head(200, "text/event-stream", gzip), Body: []byte(finish), End: true}}, "provider_error", "server_error",
			"The provider answered with status 200 and text/event-stream instead of a stream of events. It can be passed on only while openai.keepalive_ms is 0."},
		"a lost provider":    {[]any{lost}, "provider_disconnected", "server_error", "The connection to the provider was lost before the answer was complete."},
		"lost in its error":  {[]any{dispatch.Frame{Head: head(500, "text/plain"), Body: []byte("x")}, lost}, "provider_disconnected", "server_error", "The connection to the provider was lost before the answer was complete."},
		"an empty stream":    {[]any{whole(200, "text/event-stream", "")}, "provider_disconnected", "server_error", "The connection to the provider was lost before the answer was complete."},
		"refused in the end": {[]any{refusal{}, &dispatch.FailedError{Code: dispatch.ProviderBusy, Grant: grant}}, "provider_busy", "server_error", "The provider has no free slot. Retry later."},
		"a queue that ends":  {[]any{refusal{}, &broker.QueueTimeoutError{Waited: time.Minute}}, "queue_timeout", "server_error", "No provider became free within 1m0s. Retry later."},
		"a stop":             {[]any{refusal{}, dispatch.ErrStopped}, "draining", "server_error", "The server is shutting down. Retry later."},
		"a bug":              {[]any{errors.New("secret detail")}, "internal_error", "server_error", internalSentence},
	} {
		t.Run(name, func(t *testing.T) {
			open(t, commented(), "/v1/chat/completions", streamed, func(x *exchange) {
				x.step(nil)
				x.pass(1, every)
				x.comment()
				for _, step := range c.last[:len(c.last)-1] {
					x.step(step)
				}
				x.last(c.last[len(c.last)-1])
				got := <-x.reply
				require.NoError(x, got.err)
				require.Equal(x, 200, got.StatusCode)
				require.True(x, strings.HasPrefix(got.body, comment+"data: {"), got.body)
				data := lastEvent(x, got.body)
				requireEnvelope(x, data, c.code, c.kind)
				require.Contains(x, data, `"message":"`+c.message+`"`)
				require.NotContains(x, got.body, "[DONE]")
				require.Error(x, x.err, "counted as failed")
				if name != "a bug" && !strings.HasPrefix(name, "a queue") && name != "a stop" {
					var failed *dispatch.FailedError
					require.ErrorAs(x, x.err, &failed)
				}
			})
		})
	}
}

// Another candidate takes over a stream of comments after a late refusal, and comments go on meanwhile.
func TestCommentsGoOnOverALateRefusal(t *testing.T) {
	open(t, commented(), "/v1/chat/completions", streamed, func(x *exchange) {
		x.step(nil)
		x.pass(1, every)
		x.comment()
		x.step(refusal{})
		x.pass(2, every)
		x.comment()
		x.step(nil)
		x.pass(2, every)
		x.comment()
		x.step(dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(delta)})
		x.last(dispatch.Frame{Body: []byte(finish), End: true})
		got := <-x.reply
		require.NoError(x, got.err)
		require.Equal(x, strings.Repeat(comment, 3)+asked(delta+finish), got.body)
	})
}

// Nothing but a stream of events that was asked for gets comments.
func TestCommentsOnlyInStreamsOfEvents(t *testing.T) {
	for name, c := range map[string]struct{ path, body string }{
		"not asked for":      {"/v1/chat/completions", hello},
		"asked for in JSON":  {"/v1/chat/completions", `{"stream":false,"model":"m"}`},
		"no such endpoint":   {"/v1/embeddings", streamed},
		"another of its own": {"/v1/rerank", streamed},
	} {
		t.Run(name, func(t *testing.T) {
			open(t, commented(), c.path, c.body, func(x *exchange) {
				x.step(nil)
				x.clock.Advance(time.Hour)
				x.step(dispatch.Frame{Head: head(200, "application/json"), Body: []byte(`{"model":`)})
				x.clock.Advance(time.Hour)
				x.last(dispatch.Frame{Body: []byte(`"served"}`), End: true})
				got := <-x.reply
				require.NoError(x, got.err)
				require.Equal(x, `{"model":"m"}`, got.body)
				require.Equal(x, "application/json", got.Header.Get("Content-Type"))
			})
		})
	}
	t.Run("a plain answer to a stream request", func(t *testing.T) {
		open(t, commented(), "/v1/chat/completions", streamed, func(x *exchange) {
			x.step(nil)
			x.step(dispatch.Frame{Head: head(200, "application/json"), Body: []byte(`{"model":`)})
			x.pass(1, every)
			x.last(dispatch.Frame{Body: []byte(`"served"}`), End: true})
			require.Equal(x, `{"model":"m"}`, (<-x.reply).body)
		})
	})
	t.Run("off", func(t *testing.T) {
		open(t, settings(), "/v1/chat/completions", streamed, func(x *exchange) {
			x.step(nil)
			x.clock.Advance(time.Hour)
			x.step(dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(delta)})
			x.clock.Advance(time.Hour)
			x.last(dispatch.Frame{Body: []byte(finish), End: true})
			require.Equal(x, asked(delta+finish), (<-x.reply).body)
		})
	})
}

// B03: a client that goes during the comments is noticed like any other.
func TestCase_B03_AClientThatLeavesDuringComments(t *testing.T) {
	p := new(perRun)
	over(t, p, commented(), func(r *rig) {
		x := &exchange{rig: r, silent: newSilent(), clock: clockwork.NewFakeClock()}
		p.now, r.handler.clock = x.silent, x.clock
		ctx, leave := context.WithCancel(r.Context())
		handed := make(chan struct{})
		go func() {
			defer close(handed)
			x.step(nil)
			x.pass(1, every)
		}()
		res, err := r.client.Do(r.request(http.MethodPost, "/v1/chat/completions", streamed).WithContext(ctx))
		require.NoError(r, err)
		require.Equal(r, ": keep-alive\n", line(r, bufio.NewReader(res.Body)))
		<-handed
		leave()
		<-x.ended
		require.ErrorIs(r, x.err, context.Canceled)
		res.Body.Close()
	})
}
