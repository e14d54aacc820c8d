package openai

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

const (
	streamed = `{"stream":true,` + `"model":"m","messages":[]}`
	delta    = "data: {\"model\":\"served\",\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n"
	finish   = "data: {\"model\":\"served\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	done     = "data: [DONE]\n\n"
)

func asked(s string) string { return strings.ReplaceAll(s, `"served"`, `"m"`) }

var lost = &dispatch.FailedError{Code: dispatch.ProviderDisconnected, Message: "link", Started: true, HandedOff: true, Grant: grant}

// Streams which reach the client byte for byte, but for the model, and end well.
func TestCase_A01_A04_A06_A07_A09_A15_A25_A26_A28_F04_StreamsPass(t *testing.T) {
	big := "data: {\"model\":\"served\",\"arguments\":\"" + strings.Repeat("long ", 420<<10) + "\"}\n\n"
	for _, c := range []struct {
		name  string
		parts []string
	}{
		{"plain", []string{delta, delta, finish, done}},
		{"F04 split inside the model", []string{delta[:18], delta[18:22], delta[22:], finish + done}},
		{"A01 comments", []string{": ping\n\n", delta, ": ping\n\n", finish, done}},
		{"A04 CRLF split", []string{strings.ReplaceAll(delta, "\n", "\r\n")[:len(delta)], "\n", "\r", "\n", finish, done}},
		{"A06 no space, several data lines", []string{"data:{\"model\":\"served\"}\n\n", "data: {\"choices\":\ndata: [{\"finish_reason\":\"stop\"}]}\n\n"}},
		{"A07 one line of 2 MB", append(split(big, 16<<10), finish, done)},
		{"A09 empty and absent choices", []string{"data: {\"choices\":[]}\n\n", "data: {\"id\":1}\n\n", finish, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n", done}},
		{"A25 finish, then usage", []string{delta, finish, "data: {\"choices\":[],\"usage\":{}}\n\n", done}},
		{"A26 reasoning and unknown fields", []string{"data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"h\\u006d\",\"zz\":1.50}}]}\n\n", finish, done}},
		{"A28 no last blank line", []string{delta, finish, "data: {\"usage\":{\"prompt_tokens\":1}}\n"}},
		{"finish without an end marker", []string{delta, finish}},
		{"no model in it", []string{"data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var result error
			record := func(d doFunc) doFunc {
				return func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
					result = d(ctx, q, s)
					return result
				}
			}
			for _, frames := range [][]dispatch.Frame{ended(events(c.parts...)), {whole(200, "text/event-stream", strings.Join(c.parts, ""))}} {
				over(t, record(answer(frames...)), settings(), func(r *rig) {
					got := r.chat(streamed)
					require.NoError(r, got.err)
					require.NoError(r, result)
					require.Equal(r, 200, got.StatusCode)
					require.True(r, asked(strings.Join(c.parts, "")) == got.body, "got %.2000q", got.body)
					// A15: nothing between may keep it back
					require.Equal(r, "no-cache", got.Header.Get("Cache-Control"))
					require.Equal(r, "no", got.Header.Get("X-Accel-Buffering"))
					require.Equal(r, "text/event-stream", got.Header.Get("Content-Type"))
					require.Equal(r, "gx10", got.Header.Get("X-Iop-Node"))
					require.Equal(r, "vllm", got.Header.Get("X-Iop-Provider"))
					require.Equal(r, "12", got.Header.Get("X-Iop-Queue-Ms"))
				})
			}
		})
	}
}

func split(s string, n int) (parts []string) {
	for len(s) > n {
		parts, s = append(parts, s[:n]), s[n:]
	}
	return append(parts, s)
}

// Streams which end too early are told so, in an event of its own, without an end marker.
func TestCase_A10_A14_StreamsBreak(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []string
		err   error // nil: the provider ended neatly
		code  string
		want  string // before the error event
	}{
		{"A10 a neat end on an event's edge", []string{delta, delta, delta, delta, delta}, nil, "provider_disconnected", strings.Repeat(delta, 5)},
		{"A10 a neat end inside a line", []string{delta, delta[:40]}, nil, "provider_disconnected", delta + delta[:40] + "\n\n"},
		{"A10 a neat end after a line", []string{delta, "data: {}\n"}, nil, "provider_disconnected", delta + "data: {}\n\n"},
		{"A10 only comments", []string{": ping\n\n"}, nil, "provider_disconnected", ": ping\n\n"},
		{"A10 an empty finish_reason", []string{"data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\n"}, nil, "provider_disconnected", "data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\n"},
		{"A14 reset between events", []string{delta}, lost, "provider_disconnected", delta},
		{"A14 reset inside the model", []string{delta, delta[:20]}, lost, "provider_disconnected", delta + delta[:15] + "\n\n"},
		{"A14 reset after the finish", []string{delta, finish}, lost, "provider_disconnected", delta + finish},
		{"timeout", []string{delta}, &dispatch.FailedError{Code: dispatch.ProviderTimeout, Started: true}, "provider_timeout", delta},
		{"a bug", []string{delta}, errors.New("secret detail"), "internal_error", delta},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames := events(c.parts...)
			if c.err == nil {
				frames = ended(frames)
			}
			var result error
			d := doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
				result = answer(frames...).then(c.err)(ctx, q, s)
				return result
			})
			over(t, d, settings(), func(r *rig) {
				got := r.chat(streamed)
				require.NoError(r, got.err)
				require.Equal(r, 200, got.StatusCode)
				data := lastEvent(r, got.body)
				requireEnvelope(r, data, c.code, "server_error")
				require.Equal(r, asked(c.want), strings.TrimSuffix(got.body, "data: "+data+"\n\n"))
				require.NotContains(r, got.body, "[DONE]")
				require.NotContains(r, got.body, "secret detail")
				if c.err == nil {
					var failed *dispatch.FailedError
					require.ErrorAs(r, result, &failed, "dispatch counts it as failed")
					require.Equal(r, dispatch.ProviderDisconnected, failed.Code)
				}
			})
		})
	}
}

func TestCase_A14_TheProvidersOwnErrorEventIsTheOnlyOne(t *testing.T) {
	const event = "data: {\"error\":{\"message\":\"from the provider\",\"code\":500}}\n\n"
	for name, d := range map[string]doFunc{"a neat end": answer(ended(events(delta, event))...), "a reset": answer(events(delta, event)...).then(lost)} {
		t.Run(name, func(t *testing.T) {
			var result error
			record := doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
				result = d(ctx, q, s)
				return result
			})
			over(t, record, settings(), func(r *rig) {
				got := r.chat(streamed)
				require.NoError(r, got.err)
				require.Equal(r, asked(delta+event), got.body)
				var failed *dispatch.FailedError
				require.ErrorAs(r, result, &failed, "dispatch counts it as failed")
			})
		})
	}
}

func TestLinkLostAfterTheEndMarkerAddsNothing(t *testing.T) {
	over(t, answer(events(delta, finish, done)...).then(lost), settings(), func(r *rig) {
		got := r.chat(streamed)
		require.NoError(r, got.err)
		require.Equal(r, asked(delta+finish+done), got.body)
	})
}

func TestCase_A13_ErrorsOfTheProviderAreItsOwn(t *testing.T) {
	for _, c := range []struct {
		status      int
		contentType string
		body        string
	}{
		{400, "application/json; charset=utf-8", `{"error":{"code":400,"message":"no","model":"served","type":"x","n_ctx":1024}}`},
		{404, "application/json", `{"model":"served"}`},
		{429, "application/json", `{}`},
		{500, "text/plain", `context size exceeded`},
		{503, "text/html", `<html>`},
		{400, "text/event-stream", "data: {\"model\":\"served\"}\n\n"},
		{500, "application/json", ``},
	} {
		for _, frames := range [][]dispatch.Frame{
			{whole(c.status, c.contentType, c.body)},
			{{Head: head(c.status, c.contentType)}, {Body: []byte(c.body)}, {End: true}},
		} {
			frames[0].Head.Header = append(frames[0].Head.Header, dispatch.Header{Name: "Retry-After", Value: "17"})
			over(t, answer(frames...), settings(), func(r *rig) {
				got := r.chat(streamed)
				require.NoError(r, got.err)
				require.Equal(r, c.status, got.StatusCode)
				require.Equal(r, c.contentType, got.Header.Get("Content-Type"))
				require.Equal(r, "17", got.Header.Get("Retry-After"))
				require.Equal(r, c.body, got.body)
			})
		}
	}
}

func TestCase_A13_AnEmptyEventStreamIsALostProvider(t *testing.T) {
	over(t, answer(whole(200, "text/event-stream", "")), settings(), func(r *rig) {
		got := r.chat(streamed)
		r.requireError(got, 502, "provider_disconnected", "server_error")
		require.Empty(r, got.Header.Get("X-Accel-Buffering"))
		require.Equal(r, "gx10", got.Header.Get("X-Iop-Node"))
	})
}

func TestCase_A16_EachEventArrivesAtOnce(t *testing.T) {
	next := make(chan string)
	d := doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
		g := grant
		f := dispatch.Frame{Head: head(200, "text/event-stream")}
		for part := range next {
			f.Body, f.End = []byte(part), strings.HasSuffix(part, done)
			if err := s.Frame(&g, &f); err != nil || f.End {
				return err
			}
			f.Head = nil
		}
		return nil
	})
	over(t, d, settings(), func(r *rig) {
		go func() { next <- ": 0\n" }()
		res, err := r.client.Do(r.request("POST", "/v1/chat/completions", streamed))
		require.NoError(r, err)
		defer res.Body.Close()
		body := bufio.NewReader(res.Body)
		require.Equal(r, ": 0\n", line(r, body))
		for range 5 { // an event is sent only when the one before has been read: buffering would hang here
			next <- "data: 20 bytes long\n"
			require.Equal(r, "data: 20 bytes long\n", line(r, body))
		}
		next <- "\n" + done
		rest, err := io.ReadAll(body)
		require.NoError(r, err)
		require.Equal(r, "\n"+done, string(rest))
	})
}

func TestCase_A23_PlainAnswerToAStreamRequest(t *testing.T) {
	over(t, answer(whole(200, "application/json; charset=utf-8", `{"id":1,"model":"served"}`)), settings(), func(r *rig) {
		got := r.chat(streamed)
		require.Equal(r, `{"id":1,"model":"m"}`, got.body)
		require.Equal(r, "application/json; charset=utf-8", got.Header.Get("Content-Type"))
		require.EqualValues(r, len(got.body), got.ContentLength)
		require.Empty(r, got.Header.Get("X-Accel-Buffering"))
	})
}

func TestCase_F04_NonStreamAnswers(t *testing.T) {
	bodyInParts := []dispatch.Frame{{Head: head(200, "application/json"), Body: []byte(`{"a":[1,2],"mod`)}, {Body: []byte(`el":"ser`)}, {Body: []byte(`ved"}`), End: true}}
	over(t, answer(bodyInParts...), settings(), func(r *rig) {
		got := r.chat(hello)
		require.NoError(r, got.err)
		require.Equal(r, `{"a":[1,2],"model":"m"}`, got.body)
		require.EqualValues(r, -1, got.ContentLength)
	})
	for _, err := range []error{lost, errors.New("bug")} {
		over(t, answer(bodyInParts[:2]...).then(err), settings(), func(r *rig) {
			require.Error(r, r.chat(hello).err, "a short body can never pass for a whole one")
		})
	}
	encoded := dispatch.Frame{Head: head(200, "application/json", dispatch.Header{Name: "Content-Encoding", Value: "gzip"}), Body: []byte(`{"model":"served"}`), End: true}
	over(t, answer(encoded), settings(), func(r *rig) {
		got := r.chat(hello)
		require.Equal(r, `{"model":"served"}`, got.body, "an encoded answer passes verbatim")
		require.Equal(r, "gzip", got.Header.Get("Content-Encoding"))
	})
	over(t, answer(dispatch.Frame{Head: head(204, ""), End: true}), settings(), func(r *rig) {
		got := r.chat(hello)
		require.NoError(r, got.err)
		require.Equal(r, 204, got.StatusCode)
	})
	over(t, answer(whole(99, "application/json", `{}`)), settings(), func(r *rig) {
		r.requireError(r.chat(hello), 502, "provider_disconnected", "server_error")
	})
}

func TestResponseHeadersAreFiltered(t *testing.T) {
	h := head(200, "application/json")
	for _, name := range []string{"Set-Cookie", "Server", "Date", "ETag", "Digest", "Connection", "Transfer-Encoding", "X-Request-Id", "Content-Length", "X-Iop-Node", "Access-Control-Allow-Origin", "Location"} {
		h.Header = append(h.Header, dispatch.Header{Name: name, Value: "77"})
	}
	h.Header = append(h.Header, dispatch.Header{Name: "openai-processing-ms", Value: "5"}, dispatch.Header{Name: "X-RateLimit-Remaining", Value: "6"}, dispatch.Header{Name: "Cache-Control", Value: "private"})
	over(t, answer(dispatch.Frame{Head: h, Body: []byte(`{}`), End: true}), settings(), func(r *rig) {
		got := r.chat(hello)
		require.Equal(r, "{}", got.body)
		for name, values := range got.Header {
			require.NotContains(r, values, "77", name)
		}
		require.Equal(r, "5", got.Header.Get("Openai-Processing-Ms"))
		require.Equal(r, "6", got.Header.Get("X-Ratelimit-Remaining"))
		require.Equal(r, "private", got.Header.Get("Cache-Control"))
	})
}

// Queued, before the first byte and while streaming (B03, B04 at this level).
func TestCase_B02_B03_B04_ClientAbortIsNoticed(t *testing.T) {
	reached, ended := make(chan struct{}), make(chan error)
	wait := func(frames ...dispatch.Frame) doFunc {
		return func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
			_ = answer(frames...)(ctx, q, s)
			reached <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		}
	}
	for name, d := range map[string]doFunc{
		"queued or in prefill": wait(),
		"streaming":            wait(events(delta)...),
		"non-stream":           wait(dispatch.Frame{Head: head(200, "application/json"), Body: []byte("{")}),
	} {
		for _, length := range []int64{int64(len(streamed)), -1} {
			t.Run(name, func(t *testing.T) {
				over(t, d, settings(), func(r *rig) {
					ctx, abort := context.WithCancel(r.Context())
					req := r.request("POST", "/v1/chat/completions", streamed).WithContext(ctx)
					req.ContentLength = length
					over := make(chan struct{})
					go func() {
						defer close(over)
						if res, err := r.client.Do(req); err == nil {
							_, _ = io.Copy(io.Discard, res.Body)
							res.Body.Close()
						}
					}()
					<-reached
					abort()
					require.ErrorIs(r, <-ended, context.Canceled)
					<-over
				})
			})
		}
	}
}

func TestAClientThatReadsNothingIsGivenUp(t *testing.T) {
	s := settings()
	s.StallTimeout = 50 * time.Millisecond
	result := make(chan error, 1)
	endless := doFunc(func(ctx context.Context, q *dispatch.Request, sink dispatch.Sink) error {
		g, f := grant, dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(strings.Repeat(delta, 500))}
		for {
			if err := sink.Frame(&g, &f); err != nil {
				result <- err
				return err
			}
			f.Head = nil
		}
	})
	over(t, endless, s, func(r *rig) {
		res, err := r.client.Do(r.request("POST", "/v1/chat/completions", streamed))
		require.NoError(r, err)
		require.Error(r, <-result)
		res.Body.Close()
	})
}

func BenchmarkRelayStream(b *testing.B) {
	frame := dispatch.Frame{Body: []byte(delta)}
	d := doFunc(func(_ context.Context, _ *dispatch.Request, s dispatch.Sink) error {
		g, first := grant, dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(delta)}
		_ = s.Frame(&g, &first)
		for range 200 {
			_ = s.Frame(&g, &frame)
		}
		return s.Frame(&g, &dispatch.Frame{Body: []byte(finish + done), End: true})
	})
	h := New(d, estimate.NewCalibration(), nil, settings())
	b.ReportAllocs()
	for b.Loop() {
		req := benchRequest(b, streamed)
		h.ServeHTTP(newRecorder(), req)
	}
}

func BenchmarkWhole(b *testing.B) {
	h := New(answer(whole(200, "application/json", `{"id":"x","model":"served","choices":[{"message":{"content":"`+strings.Repeat("words ", 100)+`"}}]}`)), estimate.NewCalibration(), nil, settings())
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("words ", 170) + `"}]}`
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(newRecorder(), benchRequest(b, body))
	}
}
