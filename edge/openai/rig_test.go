package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ Dispatcher = (*dispatch.Dispatcher)(nil)
	_ Keys       = (*auth.Keyring)(nil)
)

// doFunc is a Dispatcher under the test's control.
type doFunc func(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error

func (f doFunc) Do(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
	return f(ctx, r, s)
}

var grant = dispatch.Grant{Node: "gx10", Provider: "vllm", Target: "served", QueueWait: 12 * time.Millisecond}

// answer plays frames to the sink and returns its first error, as dispatch does.
func answer(frames ...dispatch.Frame) doFunc {
	return func(_ context.Context, _ *dispatch.Request, s dispatch.Sink) error {
		for i := range frames {
			g := grant
			if err := s.Frame(&g, &frames[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// refuse ends every request with err.
func refuse(err error) doFunc {
	return func(context.Context, *dispatch.Request, dispatch.Sink) error { return err }
}

// then plays the frames and fails afterwards.
func (f doFunc) then(err error) doFunc {
	return func(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
		if e := f(ctx, r, s); e != nil {
			return e
		}
		return err
	}
}

func head(status int, contentType string, more ...dispatch.Header) *dispatch.Head {
	h := &dispatch.Head{Status: status, Header: more}
	if contentType != "" {
		h.Header = append(h.Header, dispatch.Header{Name: "content-type", Value: contentType})
	}
	return h
}

func whole(status int, contentType, body string) dispatch.Frame {
	return dispatch.Frame{Head: head(status, contentType), Body: []byte(body), End: true}
}

// events is an event stream in as many frames as parts.
func events(parts ...string) []dispatch.Frame {
	var frames []dispatch.Frame
	for i, p := range parts {
		f := dispatch.Frame{Body: []byte(p)}
		if i == 0 {
			f.Head = head(200, "text/event-stream")
		}
		frames = append(frames, f)
	}
	return frames
}

func ended(frames []dispatch.Frame) []dispatch.Frame {
	return append(frames, dispatch.Frame{End: true})
}

func settings() Settings {
	return Settings{
		Models: []Model{
			{ID: "m", Group: "m", ContextWindow: 262144},
			{ID: "org/name", Group: "org/name"},
			{ID: "M", Group: "M"},
			{ID: "tiny", Group: "route:tiny"},
		},
		Created:       time.Unix(1796048940, 0),
		Keys:          auth.NewKeyring(auth.Credentials{Open: true}),
		LongThreshold: 100000,
		BodyLimit:     1 << 20,
	}
}

type rig struct {
	*testing.T
	handler     *Handler
	calibration *estimate.Calibration
	url         string
	client      *http.Client
	log         *bytes.Buffer
}

// over runs a test over HTTP/1.1 and over HTTP/2 without TLS.
func over(t *testing.T, d Dispatcher, s Settings, test func(r *rig)) {
	for _, name := range []string{"h1", "h2c"} {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, log: new(bytes.Buffer), calibration: estimate.NewCalibration()}
			r.handler = New(d, r.calibration, slog.New(slog.NewTextHandler(r.log, nil)), s)
			server := httptest.NewUnstartedServer(r.handler)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			server.Start()
			t.Cleanup(server.Close)
			transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
			transport.Protocols.SetHTTP1(name == "h1")
			transport.Protocols.SetUnencryptedHTTP2(name == "h2c")
			t.Cleanup(transport.CloseIdleConnections)
			r.url, r.client = server.URL, &http.Client{Transport: transport}
			test(r)
		})
	}
}

func (r *rig) request(method, path, body string, header ...string) *http.Request {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, strings.NewReader(body))
	require.NoError(r, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

type reply struct {
	*http.Response
	body string
	err  error // of reading the body
}

func (r *rig) do(req *http.Request) reply {
	r.Helper()
	res, err := r.client.Do(req)
	require.NoError(r, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{res, string(body), err}
}

func (r *rig) chat(body string, header ...string) reply {
	r.Helper()
	return r.do(r.request(http.MethodPost, "/v1/chat/completions", body, header...))
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// requireError checks the envelope: all four fields, and nothing besides.
func (r *rig) requireError(got reply, status int, code, kind string) {
	r.Helper()
	require.NoError(r, got.err)
	require.Equal(r, status, got.StatusCode, got.body)
	require.Equal(r, "application/json", got.Header.Get("Content-Type"))
	requireEnvelope(r, got.body, code, kind)
	require.NotEmpty(r, got.Header.Get("X-Request-Id"))
}

func requireEnvelope(t require.TestingT, body, code, kind string) {
	var e map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &e), body)
	require.Len(t, e, 1)
	require.Len(t, e["error"], 4, body)
	require.Contains(t, e["error"], "param")
	require.Equal(t, code, e["error"]["code"])
	require.Equal(t, kind, e["error"]["type"])
	require.NotEmpty(t, e["error"]["message"])
}

// lastEvent returns the data of the last event of a stream.
func lastEvent(t require.TestingT, body string) string {
	require.True(t, strings.HasSuffix(body, "\n\n"), "the last event is complete: %q", body)
	parts := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n")
	data, isData := strings.CutPrefix(parts[len(parts)-1], "data: ")
	require.True(t, isData, body)
	return data
}

// line reads one line of a running answer.
func line(t require.TestingT, r *bufio.Reader) string {
	s, err := r.ReadString('\n')
	require.NoError(t, err)
	return s
}
