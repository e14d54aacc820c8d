package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
)

const (
	formType = "multipart/form-data; boundary=XX"
	form     = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\x00\xff\r\n" +
		"--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n%s\r\n--XX--\r\n"
)

// sample is a request of one row: body has a place for the model, as it is spelt there.
type sample struct {
	contentType, body string
	surface           admission.Surface
	// misread names the type of error that tells a client of this row that the model is unknown.
	misread string
}

// samples has an entry for each row; a row without one fails.
var samples = map[string]sample{
	"/v1/chat/completions":      {"application/json", `{"model":"%s","messages":[]}`, admission.SurfaceChat, "invalid_request_error"},
	"/v1/completions":           {"application/json", `{"prompt":"a","model":"%s"}`, admission.SurfaceCompletions, "invalid_request_error"},
	"/v1/responses":             {"application/json", `{"input":"a","model":"%s"}`, admission.SurfaceResponses, "invalid_request_error"},
	"/v1/embeddings":            {"application/json", `{"input":["a"],"model":"%s"}`, admission.SurfaceEmbeddings, "invalid_request_error"},
	"/v1/messages":              {"application/json", `{"max_tokens":4,"model":"%s","messages":[]}`, admission.SurfaceMessages, "not_found_error"},
	"/v1/messages/count_tokens": {"application/json", `{"model":"%s","messages":[]}`, admission.SurfaceCountTokens, "not_found_error"},
	"/v1/rerank":                {"application/json", `{"model":"%s","query":"q","documents":["a","b"]}`, admission.SurfaceRerank, "invalid_request_error"},
	"/v1/audio/speech":          {"application/json", `{"model":"%s","input":"a","voice":"v"}`, admission.SurfaceSpeech, "invalid_request_error"},
	"/v1/audio/transcriptions":  {formType, form, admission.SurfaceTranscription, "invalid_request_error"},
	"/v1/audio/translations":    {formType, form, admission.SurfaceTranslation, "invalid_request_error"},
	"/v1/images/generations":    {"application/json", `{"model":"%s","prompt":"a"}`, admission.SurfaceImages, "invalid_request_error"},
	"/api/chat":                 {"application/json", `{"model":"%s","messages":[]}`, admission.SurfaceOllama, ""},
	"/api/generate":             {"application/json", `{"model":"%s","prompt":"a"}`, admission.SurfaceOllama, ""},
	"/api/embed":                {"application/json", `{"model":"%s","input":"a"}`, admission.SurfaceOllama, ""},
	"/api/embeddings":           {"application/json", `{"model":"%s","prompt":"a"}`, admission.SurfaceOllama, ""},
}

// eachRow runs a test for every row of the table.
func eachRow(t *testing.T, d Dispatcher, s Settings, test func(r *rig, e *endpoint, row sample)) {
	t.Helper()
	require.Len(t, samples, len(endpoints), "every row has a sample, and every sample a row")
	over(t, d, s, func(r *rig) {
		for i := range endpoints {
			e := &endpoints[i]
			row, known := samples[e.path]
			require.True(r, known, "no sample for %s", e.path)
			test(r, e, row)
		}
	})
}

// ask sends the row's sample for a model.
func (r *rig) ask(e *endpoint, row sample, model string, header ...string) reply {
	r.Helper()
	return r.do(r.request("POST", e.path, fmt.Sprintf(row.body, model), append([]string{"Content-Type", row.contentType}, header...)...))
}

// requireProblem checks that an error is worded as the row's clients read it.
func requireProblem(r *rig, e *endpoint, got reply, status int, code, kind string) {
	r.Helper()
	require.NoError(r, got.err)
	require.Equal(r, status, got.StatusCode, "%s: %s", e.path, got.body)
	require.Equal(r, "application/json", got.Header.Get("Content-Type"))
	id := got.Header.Get("X-Request-Id")
	require.NotEmpty(r, id)
	var body struct {
		Type      string
		Error     json.RawMessage
		RequestID string `json:"request_id"`
	}
	require.NoError(r, json.Unmarshal([]byte(got.body), &body), got.body)
	switch e.errors {
	case ollama:
		var words string
		require.NoError(r, json.Unmarshal(body.Error, &words), got.body)
		require.NotEmpty(r, words)
	case anthropic:
		require.Equal(r, "error", body.Type)
		require.Equal(r, id, body.RequestID)
		require.Equal(r, id, got.Header.Get("Request-Id"))
		var in struct{ Type, Message, Code string }
		require.NoError(r, json.Unmarshal(body.Error, &in))
		require.Equal(r, []string{kind, code}, []string{in.Type, in.Code})
		require.NotEmpty(r, in.Message)
	default:
		requireEnvelope(r, got.body, code, kind)
		require.Empty(r, got.Header.Get("Request-Id"))
	}
}

// anthropically is the kind that a row's clients know for a status.
func anthropically(e *endpoint, kind, theirs string) string {
	if e.errors == anthropic {
		return theirs
	}
	return kind
}

func TestCase_E23_EveryRowIsCarriedWithItsModelReplaced(t *testing.T) {
	u := new(upstream)
	eachRow(t, u, settings(), func(r *rig, e *endpoint, row sample) {
		got := r.ask(e, row, "m", "X-Request-Id", "id-1", "Anthropic-Version", "2023-06-01")
		require.Equal(r, 200, got.StatusCode, got.body)
		require.Equal(r, `{"model":"m"}`, got.body)
		require.Equal(r, e.path, u.last.Path)
		require.Equal(r, row.surface, u.last.Surface)
		require.Equal(r, admission.Normal, u.last.Input.Class())
		require.Equal(r, fmt.Sprintf(row.body, "served"), u.body)
		require.Contains(r, u.last.Header, dispatch.Header{Name: "content-type", Value: row.contentType})
		require.Contains(r, u.last.Header, dispatch.Header{Name: "anthropic-version", Value: "2023-06-01"})
		require.Equal(r, "id-1", got.Header.Get("X-Request-Id"))
		require.Equal(r, "gx10", got.Header.Get("X-Iop-Node"))
	})
}

func TestCase_A22_MethodsOfEveryRow(t *testing.T) {
	u := new(upstream)
	eachRow(t, u, settings(), func(r *rig, e *endpoint, _ sample) {
		for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "TRACE", "BREW"} {
			got := r.do(r.request(method, e.path, ""))
			requireProblem(r, e, got, 405, "method_not_allowed", "invalid_request_error")
			require.Equal(r, "POST", got.Header.Get("Allow"))
		}
		got := r.do(r.request("HEAD", e.path, ""))
		require.Equal(r, 405, got.StatusCode)
		require.Equal(r, "POST", got.Header.Get("Allow"))
		require.Empty(r, got.body)
		got = r.do(r.request("OPTIONS", e.path, ""))
		require.Equal(r, 204, got.StatusCode)
		require.Equal(r, "POST, OPTIONS", got.Header.Get("Allow"))
		require.Empty(r, got.body)
		require.Empty(r, got.Header.Get("Access-Control-Allow-Origin"))
	})
	require.Nil(t, u.last, "nothing went on")
}

// A path is a row's own spelling, or nothing is there.
func TestCase_E22_OtherSpellingsOfAPathAreNotFound(t *testing.T) {
	u := new(upstream)
	eachRow(t, u, settings(), func(r *rig, e *endpoint, row sample) {
		last := strings.LastIndexByte(e.path, '/')
		for _, path := range []string{
			e.path + "/", e.path + "//", "/" + e.path, e.path[:last] + "/" + e.path[last:], e.path[:last] + "%2F" + e.path[last+1:], "%2f" + e.path[1:],
			e.path + "%2F", e.path + "/..", "/x/.." + e.path, strings.ToUpper(e.path), e.path + "%00", e.path + ";x=1", e.path + "/m",
		} {
			if !strings.HasPrefix(path, "/") {
				path = "/" + path
			}
			got := r.do(r.request("POST", path, fmt.Sprintf(row.body, "m"), "Content-Type", row.contentType))
			require.Equal(r, 404, got.StatusCode, "%s: %s", path, got.body)
			require.Equal(r, "application/json", got.Header.Get("Content-Type"))
			require.True(r, json.Valid([]byte(got.body)), got.body)
		}
		got := r.do(r.request("POST", e.path+"?beta=true&x=%2F", fmt.Sprintf(row.body, "m"), "Content-Type", row.contentType))
		require.Equal(r, 200, got.StatusCode, "a query decides nothing")
	})
}

// A client that takes the Edge for its proxy sends the whole URL.
func TestCase_E22_AbsoluteForm(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		host := strings.TrimPrefix(r.url, "http://")
		for i := range endpoints {
			e := &endpoints[i]
			row := samples[e.path]
			conn, err := net.Dial("tcp", host)
			require.NoError(r, err)
			body := fmt.Sprintf(row.body, "m")
			_, err = fmt.Fprintf(conn, "POST http://elsewhere.example%s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
				e.path, row.contentType, len(body), body)
			require.NoError(r, err)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(r, err)
			require.Equal(r, 200, res.StatusCode, e.path)
			_, _ = io.Copy(io.Discard, res.Body)
			require.NoError(r, res.Body.Close())
			require.NoError(r, conn.Close())
		}
	})
}

func TestCase_I11_KeysOfEveryRow(t *testing.T) {
	hash := func(secret string) auth.Hash {
		h, err := auth.ParseHash(auth.HashToken(secret))
		require.NoError(t, err)
		return h
	}
	s := settings()
	s.Keys = auth.NewKeyring(auth.Credentials{Keys: []auth.Key{
		{Name: "all", Hash: hash("k")}, {Name: "one", Hash: hash("k1"), Models: []string{"m"}, MaxConcurrent: 1},
	}})
	running, release := make(chan struct{}), make(chan struct{})
	held := doFunc(func(ctx context.Context, q *dispatch.Request, sink dispatch.Sink) error {
		if q.ID == "held" {
			running <- struct{}{}
			<-release
		}
		return answer(whole(200, "application/json", `{}`))(ctx, q, sink)
	})
	eachRow(t, held, s, func(r *rig, e *endpoint, row sample) {
		requireProblem(r, e, r.ask(e, row, "m"), 401, "invalid_api_key", "authentication_error")
		requireProblem(r, e, r.ask(e, row, "m", "X-Api-Key", "wrong"), 401, "invalid_api_key", "authentication_error")
		require.Equal(r, 200, r.ask(e, row, "m", "X-Api-Key", "k").StatusCode)
		require.Equal(r, 200, r.ask(e, row, "m", "Authorization", "Bearer k").StatusCode)
		require.Equal(r, 200, r.ask(e, row, "m", "Authorization", "Bearer k", "X-Api-Key", "wrong").StatusCode, "the bearer token counts")
		requireProblem(r, e, r.ask(e, row, "m", "Authorization", "Bearer wrong", "X-Api-Key", "k"), 401, "invalid_api_key", "authentication_error")
		requireProblem(r, e, r.ask(e, row, "tiny", "X-Api-Key", "k1"), 403, "model_not_allowed", "permission_error")

		first := make(chan int)
		req := r.request("POST", e.path, fmt.Sprintf(row.body, "m"), "Content-Type", row.contentType, "X-Api-Key", "k1", "X-Request-Id", "held")
		go func() { first <- r.do(req).StatusCode }()
		<-running
		requireProblem(r, e, r.ask(e, row, "m", "X-Api-Key", "k1"), 429, "key_limit", "rate_limit_error")
		release <- struct{}{}
		require.Equal(r, 200, <-first)
	})
}

// What is refused has the words of the row's clients, and the contract's status.
func TestErrorsOfEveryRow(t *testing.T) {
	for _, c := range []struct {
		err               error
		status            int
		code, kind, their string
	}{
		{&broker.UnavailableError{Reason: admission.ReasonNoModel}, 400, "endpoint_not_supported", "invalid_request_error", "invalid_request_error"},
		{&broker.UnavailableError{Reason: admission.ReasonOffline}, 503, "provider_unavailable", "server_error", "overloaded_error"},
		{&broker.QueueFullError{}, 429, "queue_full", "rate_limit_error", "rate_limit_error"},
		{&broker.QueueTimeoutError{}, 503, "queue_timeout", "server_error", "overloaded_error"},
		{&dispatch.FailedError{Code: dispatch.ProviderDisconnected, HandedOff: true}, 502, "provider_disconnected", "server_error", "api_error"},
		{&dispatch.FailedError{Code: dispatch.ProviderTimeout, HandedOff: true}, 504, "provider_timeout", "server_error", "timeout_error"},
		{fmt.Errorf("a bug"), 500, "internal_error", "server_error", "api_error"},
	} {
		t.Run(c.code, func(t *testing.T) {
			eachRow(t, refuse(c.err), settings(), func(r *rig, e *endpoint, row sample) {
				requireProblem(r, e, r.ask(e, row, "m"), c.status, c.code, anthropically(e, c.kind, c.their))
			})
		})
	}
	s := settings()
	s.BodyLimit = 1000
	eachRow(t, new(upstream), s, func(r *rig, e *endpoint, row sample) {
		requireProblem(r, e, r.ask(e, row, strings.Repeat("m", 2000)), 413, "request_too_large", anthropically(e, "invalid_request_error", "request_too_large"))
		requireProblem(r, e, r.ask(e, row, "nope"), 404, "model_not_found", row.misread)
		requireProblem(r, e, r.ask(e, row, "m", "Content-Encoding", "gzip"), 415, "unsupported_media_type", "invalid_request_error")
		requireProblem(r, e, r.ask(e, row, ""), 400, "invalid_request", "invalid_request_error")
	})
}
