package openai

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

// FuzzHeaders sends a field of any name and value both ways: only what the lists name passes, and it passes as it is.
func FuzzHeaders(f *testing.F) {
	for _, seed := range [][3]string{
		{"Authorization", "Bearer k", "id-1"}, {"accept", "text/event-stream", ""}, {"OpenAI-Beta", "a, b", "a b"}, {"x-request-id", "\r\nx: y", "x"},
		{"Content-Type", "Application/JSON ; charset=utf-8", "req_1"}, {"content-encoding", "gzip", "."}, {"Content-Length", "7", "é"}, {"openai-", "", "\x00"},
		{"X-RateLimit-Remaining", "1", strings.Repeat("x", 129)}, {"Transfer-Encoding", "chunked", "-"}, {"Set-Cookie", "a=b", "_"}, {"Trailer", "x", "A"}, {"X-RateLimit-\u0130", "1", "0"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, name, value, id string) {
		u := new(upstream)
		h := New(u, estimate.NewCalibration(), nil, settings())
		req := fuzzRequest(t, hello)
		req.Header = http.Header{"Content-Type": {"application/json"}, http.CanonicalHeaderKey(name): {value}}
		req.Header["X-Request-Id"] = append([]string{id}, req.Header["X-Request-Id"]...)
		w := newRecorder()
		h.ServeHTTP(w, req)
		got := w.Header().Get("X-Request-Id")
		require.True(t, saneID(got))
		require.True(t, got == id || !saneID(id))
		if u.last != nil {
			for _, field := range u.last.Header {
				require.Equal(t, strings.ToLower(field.Name), field.Name)
				switch key := http.CanonicalHeaderKey(field.Name); key {
				case "X-Request-Id":
					require.Equal(t, got, field.Value)
				case "Content-Type":
					require.True(t, isJSON(mediaType(field.Value)))
				default:
					require.Contains(t, toProvider, key)
					require.Equal(t, []string{field.Value}, req.Header[key])
				}
			}
		}

		w = newRecorder()
		head := &dispatch.Head{Status: 200, Header: []dispatch.Header{{Name: name, Value: value}}}
		New(answer(dispatch.Frame{Head: head, Body: []byte("{}"), End: true}), estimate.NewCalibration(), nil, settings()).ServeHTTP(w, fuzzRequest(t, hello))
		ours := []string{"X-Request-Id", "X-Iop-Edge", "X-Iop-Node", "X-Iop-Provider", "X-Iop-Queue-Ms", "Content-Type", "Content-Length", "Cache-Control", "X-Accel-Buffering"}
		lower := strings.ToLower(name) // as the relay looks at it, which is not EqualFold
		for key, values := range w.Header() {
			if toClient(strings.ToLower(key)) && strings.ToLower(key) == lower {
				require.True(t, slices.Equal(values, []string{value}) || key == "Cache-Control", "%s: %q", key, values)
				continue
			}
			require.Contains(t, ours, key)
			require.True(t, value == "" || len(value) < 4 || !slices.Contains(values, value) || strings.ToLower(key) != lower, "%s: %q", key, values)
		}
		media := mediaType(value)
		require.Equal(t, strings.TrimSpace(media), media)
		require.NotContains(t, media, ";")
	})
}

// FuzzAnswer plays any answer, in any pieces, with and without a comment before its head: it reaches the client with its own status and bytes,
// or its failure does.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []struct {
		body, media string
		status      int
	}{
		{delta + finish + done, "text/event-stream", 200}, {delta + delta[:20], "text/event-stream", 200}, {`{"model":"served"}`, "application/json", 200},
		{`{"error":{"message":"no","code":400,"type":"x","param":null}}`, "application/json", 400}, {`{"error":"no"}`, "application/json", 404},
		{"\xff\x00", "text/plain", 500}, {"", "text/event-stream", 200}, {"", "", 204}, {"x", "", 99}, {`{"detail":["a"]}`, "application/json", 422},
	} {
		f.Add([]byte(seed.body), seed.media, uint16(seed.status), uint8(3), true)
		f.Add([]byte(seed.body), seed.media, uint16(seed.status), uint8(200), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, media string, status uint16, size uint8, committed bool) {
		var result error
		d := doFunc(func(_ context.Context, _ *dispatch.Request, s dispatch.Sink) error {
			g := grant
			if committed {
				s.(*relay).commit(&g)
			}
			frame := dispatch.Frame{Head: head(int(status), media)}
			rest := body
			for {
				n := min(int(size)+1, len(rest))
				frame.Body, rest = rest[:n], rest[n:]
				frame.End = len(rest) == 0
				if result = s.Frame(&g, &frame); result != nil || frame.End {
					return result
				}
				frame.Head = nil
			}
		})
		w := newRecorder()
		aborted := false
		func() {
			defer func() {
				if cause := recover(); cause != nil {
					err, isError := cause.(error)
					require.True(t, isError && errors.Is(err, http.ErrAbortHandler), "%v", cause)
					aborted = true
				}
			}()
			New(d, estimate.NewCalibration(), nil, settings()).ServeHTTP(w, fuzzRequest(t, streamed))
		}()
		out := w.body.String()
		var reported *reportedError
		switch {
		case aborted:
			require.Error(t, result)
		case committed:
			require.Equal(t, 200, w.status)
			if result != nil && !errors.As(result, &reported) && !strings.Contains(out, "[DONE]") {
				requireOpenAIError(t, out)
			}
		case result != nil && status >= 200 && status < 600 && len(body) > 0:
			require.EqualValues(t, status, w.status, "%v", result)
		case result != nil:
			require.Equal(t, 502, w.status)
		default:
			require.EqualValues(t, status, w.status)
			if status >= 300 && status != 304 { // an error of the provider's own passes as it is
				require.Equal(t, string(body), out)
			}
			if length := w.Header().Get("Content-Length"); length != "" {
				require.Equal(t, strconv.Itoa(len(out)), length)
			}
		}
		if !committed && !aborted && !strings.Contains(string(body), "mod") && !strings.Contains(string(body), `\u`) && out != "" && result == nil {
			require.Equal(t, string(body), out)
		}
		if utf8.Valid(body) && strings.Contains(out, "data: {\"error\"") {
			require.True(t, utf8.ValidString(out))
		}
	})
}

// requireOpenAIError checks that a stream ends in an error event.
func requireOpenAIError(t *testing.T, out string) {
	data := lastEvent(t, strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(out))
	require.True(t, strings.HasPrefix(data, `{"error":{"message":`), data)
}

func fuzzRequest(t *testing.T, body string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	return req
}
