//go:build engines

package engines

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/tap"
)

// reply is what a plain HTTP client received.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// post sends body as it is, with headers that must stop at IOP, and reads the
// reply without interpreting it.
func post(t *testing.T, at endpoint, body string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.baseURL+"/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + at.key, "Content-Type": "application/json", "Cookie": "session=1",
		"Origin": "http://127.0.0.1", "Referer": "http://127.0.0.1/", "X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1",
	} {
		req.Header.Set(name, value)
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return reply{res.StatusCode, res.Header, got}
}

// newest is the last exchange the tap has seen.
func newest(t *testing.T) tap.Exchange {
	t.Helper()
	all := running.tap.Exchanges()
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

// The same call seen at both ends: what leaves the client reaches the engine and
// what leaves the engine reaches the client, each byte of it, but for the model
// names.
func TestBytesArriveUnaltered(t *testing.T) {
	// Spacing, key order, unknown members, number spellings, escapes and text
	// beyond ASCII are the client's own affair.
	const odd = `{ "temperature" : 0.30,"x_extension":{"list":[1e2, 1E+2,-0.0,12345678901234567890]},` + "\n\t" +
		`"messages":[{"content":"Zählen: \"\u00e9\\\/\" 数 go 42","role":"user"}]  ,"model" :MODEL,"seed":7OPTIONS }` + "\r\n "
	for _, c := range []struct {
		name, model, spelled, options, contentType string
	}{
		{"plain", modelBig, `"ornith:35b"`, ``, "application/json"},
		{"model spelled with an escape", modelBig, `"ornith\u003a35b"`, ``, "application/json"},
		{"stream", modelFast, `"ornith-fast"`, `,"stream":true`, "text/event-stream"},
		{"stream with usage", modelBig, `"ornith:35b"`, `,"stream":true,"stream_options":{"include_usage":true}`, "text/event-stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := strings.NewReplacer("MODEL", c.spelled, "OPTIONS", c.options).Replace(odd)
			got := post(t, running.viaIOP(), body)
			at := newest(t)

			assert.Equal(t, strings.Replace(body, c.spelled, `"`+engineModel+`"`, 1), string(at.Request))
			assert.Equal(t, "/v1/chat/completions", at.Path)
			for _, name := range []string{"Authorization", "Cookie", "Origin", "Referer", "X-Forwarded-For", "Forwarded"} {
				assert.Empty(t, at.Header.Get(name), "%s must not reach an engine", name)
			}

			require.True(t, at.Complete)
			const sent = `"model":"` + engineModel + `"`
			require.Contains(t, string(at.Response), sent)
			// Of one string in two spellings, either may come back.
			received := strings.ReplaceAll(string(got.body), `"model":`+c.spelled, `"model":"`+c.model+`"`)
			assert.Equal(t, strings.ReplaceAll(string(at.Response), sent, `"model":"`+c.model+`"`), received)
			assert.Equal(t, at.Status, got.status)
			assert.Equal(t, c.contentType, at.ResponseHeader.Get("Content-Type"))
			assert.Equal(t, c.contentType, got.header.Get("Content-Type"))
			assert.Equal(t, "workshop", got.header.Get("X-Iop-Node"))
			assert.Equal(t, "ollama", got.header.Get("X-Iop-Provider"))
			if c.options == "" {
				assert.Equal(t, strconv.Itoa(len(got.body)), got.header.Get("Content-Length"))
			} else {
				assert.True(t, bytes.HasSuffix(bytes.TrimSpace(got.body), []byte("data: [DONE]")))
			}
		})
	}
}

// What the engine itself refuses passes with status, type and body unchanged.
func TestTheEnginesOwnErrorsPass(t *testing.T) {
	got := post(t, running.viaIOP(), `{"model":"ornith:35b","messages":[{"role":"user","content":5}]}`)
	at := newest(t)
	assert.Equal(t, `{"model":"count","messages":[{"role":"user","content":5}]}`, string(at.Request))
	assert.Equal(t, http.StatusBadRequest, at.Status)
	assert.Equal(t, at.Status, got.status)
	assert.Equal(t, at.ResponseHeader.Get("Content-Type"), got.header.Get("Content-Type"))
	assert.Equal(t, string(at.Response), string(got.body))
	assert.Contains(t, string(got.body), "invalid message content type")
}

// perCall is what differs between two answers of Ollama to the same question.
var perCall = regexp.MustCompile(`"id":"chatcmpl-\d+"|"created":\d+`)

// Two calls, one straight to the engine and one through IOP, get the same reply
// but for the model's name and what the engine makes anew for each call.
func TestThroughIOPIsAsWithout(t *testing.T) {
	for _, options := range []string{``, `,"stream":true`, `,"stream":true,"stream_options":{"include_usage":true}`} {
		body := `{"messages":[{"role":"user","content":"go 230"}]` + options + `,"model":"MODEL"}`
		straight := post(t, running.direct(), strings.Replace(body, "MODEL", engineModel, 1))
		through := post(t, running.viaIOP(), strings.Replace(body, "MODEL", modelBig, 1))
		assert.Equal(t, straight.status, through.status)
		assert.Equal(t, straight.header.Get("Content-Type"), through.header.Get("Content-Type"))
		want := strings.ReplaceAll(string(straight.body), `"model":"`+engineModel+`"`, `"model":"`+modelBig+`"`)
		assert.Equal(t, perCall.ReplaceAllString(want, ""), perCall.ReplaceAllString(string(through.body), ""))
		assert.Greater(t, len(perCall.FindAllString(want, -1)), 1)
	}
}
