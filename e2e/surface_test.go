package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// callOf is one request to a site.
type callOf struct{ path, contentType, body string }

func jsonCall(path, body string) callOf { return callOf{path, "application/json", body} }

// carry sends a request and reads the reply to its end.
func (r *rig) carry(ctx context.Context, c callOf, header ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+c.path, strings.NewReader(c.body))
	require.NoError(r.t, err)
	req.Header.Set("x-api-key", apiKey)
	req.Header.Set("Content-Type", c.contentType)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(text), err}
}

// surfaceStub answers every endpoint as a server of its kind does, and tells the path it was asked at.
func surfaceStub(t *testing.T, asked chan<- *http.Request, speech []byte) *stub {
	return newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		asked <- r
		events := func(names ...string) {
			for _, name := range names {
				w.Header().Set("Content-Type", "text/event-stream")
				data := fmt.Sprintf(`{"type":%q}`, name)
				switch name {
				case "message_start":
					data = fmt.Sprintf(`{"type":%q,"message":{"id":"msg_1","model":"served"}}`, name)
				case "response.completed":
					data = fmt.Sprintf(`{"type":%q,"response":{"id":"resp_1","model":"served"}}`, name)
				}
				fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
				_ = http.NewResponseController(w).Flush()
			}
		}
		streams := bytes.Contains(body, []byte(`"stream":true`))
		switch r.URL.Path {
		case "/v1/messages":
			switch {
			case bytes.Contains(body, []byte("go silent")):
				events("message_start", "ping")
			case streams:
				events("message_start", "message_delta", "message_stop")
			default:
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("anthropic-ratelimit-requests-remaining", "4")
				_, _ = io.WriteString(w, `{"id":"msg_1","type":"message","model":"served","content":[]}`)
			}
		case "/v1/messages/count_tokens":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"input_tokens":7}`)
		case "/v1/responses":
			events("response.created", "response.completed")
		case "/v1/audio/speech":
			w.Header().Set("Content-Type", "audio/mpeg")
			_, _ = w.Write(speech)
		case "/v1/audio/transcriptions", "/v1/audio/translations":
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprintf(w, "%s of %d bytes", r.FormValue("model"), len(body))
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"model":"served","data":[]}`)
		}
	})
}

// Every endpoint of the contract goes through an Edge and a node to the path of the same name, with its model replaced there and put back here.
func TestCase_E23_EveryEndpointOverTheWholePath(t *testing.T) {
	asked := make(chan *http.Request, 1)
	speech := bytes.Repeat([]byte("\xff\xf3\x00{\"model\":\"served\"}"), 1<<17) // 2.5 MiB
	s := surfaceStub(t, asked, speech)
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 2))}, []object{model("m", "n/p=served")}), "n")
	path := func() string { return (<-asked).URL.Path }

	for _, c := range []struct {
		call callOf
		want string
	}{
		{jsonCall("/v1/messages", `{"model":"m","max_tokens":4,"messages":[]}`), `{"id":"msg_1","type":"message","model":"m","content":[]}`},
		{jsonCall("/v1/messages/count_tokens", `{"model":"m","messages":[]}`), `{"input_tokens":7}`},
		{jsonCall("/v1/rerank", `{"model":"m","query":"q","documents":["a"]}`), `{"model":"m","data":[]}`},
		{jsonCall("/v1/images/generations", `{"model":"m","prompt":"a"}`), `{"model":"m","data":[]}`},
		{jsonCall("/v1/embeddings", `{"model":"m","input":"a"}`), `{"model":"m","data":[]}`},
		{jsonCall("/v1/audio/speech", `{"model":"m","input":"a","voice":"v"}`), string(speech)},
	} {
		a := r.carry(t.Context(), c.call, "anthropic-version", "2023-06-01")
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", c.call.path, a.body)
		require.True(t, c.want == a.body, "%s: %.200s", c.call.path, a.body)
		require.Equal(t, "n", a.header.Get("X-Iop-Node"))
		got := <-asked
		require.Equal(t, c.call.path, got.URL.Path)
		require.Equal(t, "2023-06-01", got.Header.Get("Anthropic-Version"))
		require.Empty(t, got.Header.Get("X-Api-Key"))
		if c.call.path == "/v1/messages" {
			require.Equal(t, "4", a.header.Get("Anthropic-Ratelimit-Requests-Remaining"))
			require.Equal(t, a.header.Get("X-Request-Id"), a.header.Get("Request-Id"))
		}
	}

	// A form of 3 MiB, in several frames of the link.
	for _, endpoint := range []string{"/v1/audio/transcriptions", "/v1/audio/translations"} {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		file, err := w.CreateFormFile("file", "a.wav")
		require.NoError(t, err)
		_, err = file.Write(bytes.Repeat([]byte("\r\n--\x00\xff"), 3<<20/6))
		require.NoError(t, err)
		require.NoError(t, w.WriteField("model", "m"))
		require.NoError(t, w.Close())
		a := r.carry(t.Context(), callOf{endpoint, w.FormDataContentType(), body.String()})
		require.NoError(t, a.err)
		require.Equal(t, fmt.Sprintf("served of %d bytes", body.Len()-len("m")+len("served")), a.body)
		require.Equal(t, endpoint, path())
	}

	// Streams with named events: the end is the last event's, nothing is added.
	a := r.carry(t.Context(), jsonCall("/v1/messages", `{"model":"m","stream":true,"messages":[]}`))
	require.NoError(t, a.err)
	require.Equal(t, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\"}}\n\n"+
		"event: message_delta\ndata: {\"type\":\"message_delta\"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", a.body)
	path()
	a = r.carry(t.Context(), jsonCall("/v1/responses", `{"model":"m","stream":true,"input":"a"}`))
	require.NoError(t, a.err)
	require.True(t, strings.HasSuffix(a.body, `{"type":"response.completed","response":{"id":"resp_1","model":"m"}}`+"\n\n"), a.body)
	path()
	a = r.carry(t.Context(), jsonCall("/v1/messages", `{"model":"m","stream":true,"messages":[{"role":"user","content":"go silent"}]}`))
	require.NoError(t, a.err)
	require.Contains(t, a.body, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"")
	path()
	r.quiet()
}

// What no candidate's type serves is told at once, in the words of the endpoint's clients, and nothing is asked.
func TestEndpointsThatATypeDoesNotServe(t *testing.T) {
	asked := make(chan *http.Request, 10)
	s := surfaceStub(t, asked, nil)
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1, object{"type": "mlx"}))}, []object{model("m", "n/p=served")}), "n")
	form := callOf{"/v1/audio/transcriptions", "multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--B--\r\n"}
	for _, c := range []callOf{
		jsonCall("/v1/embeddings", `{"model":"m"}`), jsonCall("/v1/rerank", `{"model":"m"}`), jsonCall("/v1/responses", `{"model":"m"}`),
		jsonCall("/v1/audio/speech", `{"model":"m"}`), jsonCall("/v1/images/generations", `{"model":"m"}`), form,
		jsonCall("/v1/messages", `{"model":"m"}`), jsonCall("/v1/messages/count_tokens", `{"model":"m"}`),
	} {
		a := r.carry(t.Context(), c)
		require.NoError(t, a.err)
		require.Equal(t, http.StatusBadRequest, a.status, c.path)
		require.Equal(t, "endpoint_not_supported", a.code(t))
		var e struct{ Type string }
		require.NoError(t, json.Unmarshal([]byte(a.body), &e))
		require.Equal(t, strings.HasPrefix(c.path, "/v1/messages"), e.Type == "error", a.body)
	}
	require.Empty(t, asked)
	require.Equal(t, http.StatusOK, r.carry(t.Context(), jsonCall("/v1/chat/completions", `{"model":"m"}`)).status)
}

// The simulator serves clients of all three APIs.
func TestSimulatorSpeaksMessagesAndResponses(t *testing.T) {
	simulator := object{"id": "p", "type": "simulator", "capacity": 1}
	r := start(t, edgeFile([]object{nodeConfig("n", simulator)}, []object{model("m", "n/p=iop-simulator")}), "n")
	for _, stream := range []bool{false, true} {
		for _, c := range []callOf{
			jsonCall("/v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":6,"stream":%t,"messages":[{"role":"user","content":"hello"}]}`, stream)),
			jsonCall("/v1/responses", fmt.Sprintf(`{"model":"m","stream":%t,"input":"hello"}`, stream)),
		} {
			a := r.carry(t.Context(), c)
			require.NoError(t, a.err)
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Contains(t, a.body, `"model":"m"`)
			require.NotContains(t, a.body, `"error":{`)
			require.Contains(t, a.body, "simulator]")
		}
	}
	a := r.carry(t.Context(), jsonCall("/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hello there"}]}`))
	require.JSONEq(t, `{"input_tokens":2}`, a.body)
	r.quiet()
}
