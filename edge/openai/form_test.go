package openai

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
)

const transcriptions = "/v1/audio/transcriptions"

// What kits write goes on byte for byte, but for the model, whatever the sound holds.
func TestFormGoesOnAsItCame(t *testing.T) {
	u := new(upstream)
	s := settings()
	s.BodyLimit = 64 << 20
	over(t, u, s, func(r *rig) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		file, err := w.CreateFormFile("file", `odd "name";.wav`)
		require.NoError(r, err)
		_, err = fmt.Fprintf(file, "RIFF\x00\xff\r\n--%sX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nevil\r\n%s", w.Boundary(), strings.Repeat("\x00\x01", 1<<20))
		require.NoError(r, err)
		require.NoError(r, w.WriteField("response_format", "verbose_json"))
		require.NoError(r, w.WriteField("model", "org/name"))
		require.NoError(r, w.WriteField("timestamp_granularities[]", "word"))
		require.NoError(r, w.Close())
		sent := body.String()
		got := r.do(r.request("POST", transcriptions, sent, "Content-Type", w.FormDataContentType()))
		require.Equal(r, 200, got.StatusCode, got.body)
		require.True(r, strings.Replace(sent, "\r\n\r\norg/name\r\n", "\r\n\r\nserved\r\n", 1) == u.body)
		require.Contains(r, u.last.Header, dispatch.Header{Name: "content-type", Value: w.FormDataContentType()})
		require.Equal(r, admission.GroupKey("org/name"), u.last.Group)
	})
}

// D05: an hour of sound is no long prompt; a long text in a form is one.
func TestCase_D05_SoundIsNotCountedAsText(t *testing.T) {
	u := new(upstream)
	s := settings()
	s.BodyLimit = 64 << 20
	over(t, u, s, func(r *rig) {
		long := strings.Replace(form, "RIFF", strings.Repeat("RIFF", 8<<20), 1)
		got := r.do(r.request("POST", transcriptions, fmt.Sprintf(long, "m"), "Content-Type", formType))
		require.Equal(r, 200, got.StatusCode, got.body)
		require.Equal(r, admission.Normal, u.last.Input.Class())
		require.Positive(r, u.last.Input.Tokens)
		text := "--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n" + strings.Repeat("a", 100000) + "\r\n" + form
		got = r.do(r.request("POST", transcriptions, fmt.Sprintf(text, "m"), "Content-Type", formType))
		require.Equal(r, 200, got.StatusCode, got.body)
		require.Equal(r, admission.Long, u.last.Input.Class())
	})
}

func TestBadForms(t *testing.T) {
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		good := fmt.Sprintf(form, "m")
		for _, c := range []struct {
			body, contentType string
			status            int
			code              string
		}{
			{good, "application/json", 415, "unsupported_media_type"},
			{good, "", 415, "unsupported_media_type"},
			{good, "multipart/mixed; boundary=XX", 415, "unsupported_media_type"},
			{good, "multipart/form-data", 400, "invalid_request"},
			{good, "multipart/form-data; boundary=XX; boundary=YY", 400, "invalid_request"},
			{good, "multipart/form-data; boundary=YY", 400, "invalid_request"},
			{strings.Replace(good, `name="model"`, `name="Model"`, 1), formType, 400, "invalid_request"},
			{strings.Replace(good, `name="model"`, `name="model"; filename="m"`, 1), formType, 400, "invalid_request"},
			{strings.Replace(good, `name="file"; filename="a.wav"`, `name="model"`, 1), formType, 400, "invalid_request"},
			{strings.Replace(good, `name="model"`, `name="other"`, 1), formType, 400, "invalid_request"},
			{hello, formType, 400, "invalid_request"},
			{"", formType, 400, "invalid_request"},
			{fmt.Sprintf(form, "nope"), formType, 404, "model_not_found"},
			{fmt.Sprintf(form, `"m"`), formType, 404, "model_not_found"},
		} {
			got := r.do(r.request("POST", transcriptions, c.body, "Content-Type", c.contentType))
			r.requireError(got, c.status, c.code, "invalid_request_error")
		}
		require.Nil(r, u.last)
	})
}

// A page's form is sent without a preflight, so its origin has to be known.
func TestCase_I09_FormsOfStrangePagesAreRefused(t *testing.T) {
	u := new(upstream)
	s := settings()
	s.AllowedOrigins = []string{"https://chat.example.org"}
	over(t, u, s, func(r *rig) {
		send := func(origin string) reply {
			return r.do(r.request("POST", transcriptions, fmt.Sprintf(form, "m"), "Content-Type", formType, "Origin", origin))
		}
		for _, origin := range []string{"https://evil.example", "null", "http://chat.example.org"} {
			r.requireError(send(origin), 415, "unsupported_media_type", "invalid_request_error")
		}
		require.Nil(r, u.last)
		require.Equal(r, 200, send("https://chat.example.org").StatusCode)
		require.Equal(r, 200, send("").StatusCode)
		u.last = nil
	})
}

// Whatever a transcription comes as passes; only a stream has to show its end.
func TestTranscriptsPassInEveryForm(t *testing.T) {
	for contentType, body := range map[string]string{
		"application/json":          `{"text":"ask not","usage":{"type":"duration","seconds":11}}`,
		"text/plain; charset=utf-8": "ask not\n",
		"application/x-subrip":      "1\n00:00:00,000 --> 00:00:11,000\nask not\n",
		"text/vtt":                  "WEBVTT\n\n00:00.000 --> 00:11.000\nask not\n",
		"text/event-stream":         "event: transcript.text.delta\ndata: {\"type\":\"transcript.text.delta\",\"delta\":\"ask not\"}\n\ndata: {\"type\":\"transcript.text.done\",\"text\":\"ask not\"}\n\n",
	} {
		over(t, answer(whole(200, contentType, body)), settings(), func(r *rig) {
			got := r.do(r.request("POST", transcriptions, fmt.Sprintf(form, "m"), "Content-Type", formType))
			require.Equal(r, 200, got.StatusCode)
			require.NoError(r, got.err)
			require.Equal(r, contentType, got.Header.Get("Content-Type"))
			require.Equal(r, body, got.body)
		})
	}
	cut := ended(events("data: {\"type\":\"transcript.text.delta\",\"delta\":\"ask\"}\n\n"))
	over(t, answer(cut...), settings(), func(r *rig) {
		got := r.do(r.request("POST", transcriptions, fmt.Sprintf(form, "m"), "Content-Type", formType))
		requireEnvelope(r, lastEvent(r, got.body), "provider_disconnected", "server_error")
	})
}

// Speech is bytes: none of them is looked at, however many they are.
func TestSpeechPassesUntouched(t *testing.T) {
	sound := bytes.Repeat([]byte("\xff\xf3{\"model\":\"served\"}\r\n"), 1<<17)
	frames := []dispatch.Frame{{Head: head(200, "audio/mpeg")}}
	for part := range slicesOf(sound, 256<<10) {
		frames = append(frames, dispatch.Frame{Body: part})
	}
	over(t, answer(ended(frames)...), settings(), func(r *rig) {
		got := r.do(r.request("POST", "/v1/audio/speech", `{"model":"m","input":"hi","voice":"v"}`))
		require.NoError(r, got.err)
		require.Equal(r, "audio/mpeg", got.Header.Get("Content-Type"))
		require.True(r, string(sound) == got.body)
	})
	over(t, answer(frames...).then(&dispatch.FailedError{Code: dispatch.ProviderDisconnected, Started: true, HandedOff: true}), settings(), func(r *rig) {
		require.Error(r, r.do(r.request("POST", "/v1/audio/speech", `{"model":"m","input":"hi"}`)).err, "half of it must not pass for the whole")
	})
}

func slicesOf(b []byte, n int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 && yield(b[:min(n, len(b))]) {
			b = b[min(n, len(b)):]
		}
	}
}
