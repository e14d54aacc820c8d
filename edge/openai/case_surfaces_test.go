package openai

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/dispatch"
)

// streamOf is one streamed answer as a provider of that endpoint writes it: the parts before its end, and the end. counted has a place for the tokens
// of the prompt.
var streamsOf = map[string]struct{ begin, counted, end string }{
	"/v1/chat/completions": {delta, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d}}\n\n", done},
	"/v1/responses": {
		"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"served\"}}\n\n", "",
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"served\",\"usage\":{\"input_tokens\":%d}}}\n\n",
	},
	"/v1/messages": {
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"served\",\"usage\":{\"input_tokens\":%d}}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n", "",
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	},
}

func fill(s string, tokens int) string { return strings.ReplaceAll(s, "%d", fmt.Sprint(tokens)) }

// A04, A25, A28: whatever its lines end with, and with or without the blank line after its last event, a stream's end and its usage are seen, and
// counted once.
func TestCase_A01_A04_A25_A28_EndAndUsageAreSeenOnceWithAnyLineEnd(t *testing.T) {
	body := func(path string) string {
		text := strings.Repeat("Explain how the gate keeps two long prompts apart. ", 60)
		if path == "/v1/responses" {
			return `{"stream":true,"model":"m","input":"` + text + `"}`
		}
		return `{"stream":true,"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`
	}
	for path, stream := range streamsOf {
		whole := stream.begin + stream.counted + stream.end
		for name, text := range map[string]string{
			"LF": whole, "CRLF": strings.ReplaceAll(whole, "\n", "\r\n"), "CR": strings.ReplaceAll(whole, "\n", "\r"),
			"mixed": strings.ReplaceAll(stream.begin, "\n", "\r\n") + strings.ReplaceAll(stream.counted, "\n", "\r") + stream.end,
			"pings": ": ping\n\n" + stream.begin + ": ping\n\n" + stream.counted + stream.end, "no last blank line": strings.TrimSuffix(whole, "\n"),
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				var results []error
				tokens := 0
				d := doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
					tokens = q.Input.Estimate.Tokens() * 7 / 10
					var parts []string
					for _, c := range fill(text, tokens) { // one byte a frame: CR and LF always come apart
						parts = append(parts, string(c))
					}
					err := answer(ended(events(parts...))...)(ctx, q, s)
					results = append(results, err)
					return err
				})
				s := settings()
				s.Models[0].Targets = []string{grant.Target}
				over(t, d, s, func(r *rig) {
					results = nil
					got := r.do(r.request("POST", path, body(path)))
					require.NoError(r, got.err)
					require.Equal(r, asked(fill(text, tokens)), got.body)
					require.Equal(r, []error{nil}, results, "it ended well")
					scales := r.calibration.Scales(1)
					require.Len(r, scales, 1)
					require.Equal(r, 1, scales[0].Answers, "counted once")
				})
			})
		}
	}
}

// A10, A14: a stream that ends before its own end is told so as the clients of its endpoint read it, and never by that endpoint's end marker.
func TestCase_A10_A14_UnfinishedStreamsOfEveryKind(t *testing.T) {
	for path, stream := range streamsOf {
		for name, c := range map[string]struct {
			frames []dispatch.Frame
			err    error
		}{
			"ends neatly": {ended(events(fill(stream.begin, 9), fill(stream.begin, 9))), nil},
			"is lost":     {events(fill(stream.begin, 9), fill(stream.begin, 9)), lost},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				var result error
				d := doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
					result = answer(c.frames...).then(c.err)(ctx, q, s)
					return result
				})
				over(t, d, settings(), func(r *rig) {
					got := r.do(r.request("POST", path, `{"stream":true,"model":"m"}`))
					require.NoError(r, got.err)
					rest, began := strings.CutPrefix(got.body, asked(strings.Repeat(fill(stream.begin, 9), 2)))
					require.True(r, began, got.body)
					e := endpointOf(path)
					require.True(r, strings.HasPrefix(rest, e.errors.before+`{`), rest)
					require.Contains(r, rest, `"code":"provider_disconnected"`)
					require.Equal(r, 1, strings.Count(rest, "data:"))
					require.NotContains(r, got.body, "[DONE]")
					require.NotContains(r, got.body, "message_stop")
					require.NotContains(r, got.body, "response.completed")
					var failed *dispatch.FailedError
					require.ErrorAs(r, result, &failed, "dispatch counts it as failed")
				})
			})
		}
	}
}

// E01 to E09 on the other surfaces: what nobody knows, key order, spellings of numbers, escapes and the bytes of files go on as they came.
func TestCase_E01_E02_E04_E05_E08_E09_OtherSurfacesGoOnAsTheyCame(t *testing.T) {
	const odd = `"z":1,"a":{"made_up":[{}]},"seed":9007199254740993,"x":[-0,1.0e+2,0.30000000000000004],"t":"<&>\u003c\u2028é"`
	for path, bodies := range map[string][]string{
		"/v1/messages": {
			`{` + odd + `,"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"x"}]}`,
			`{"model":"m","messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":"s=="},{"type":"tool_use","id":"t","name":"f","input":{"z":1,"a":2}}]}],` + odd + `}`,
		},
		"/v1/messages/count_tokens": {`{"model":"m",` + odd + `,"messages":null}`},
		"/v1/responses":             {`{` + odd + `,"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}]}`},
		"/v1/rerank":                {`{` + odd + `,"model":"m","query":"q","documents":[{"text":"d"},"e"],"top_n":1}`},
		"/v1/audio/speech":          {`{` + odd + `,"model":"m","input":"x","voice":{"id":"v"}}`},
		"/api/chat":                 {`{` + odd + `,"model":"m","options":{"num_ctx":4096,"min_p":0.05},"think":true,"format":{"type":"object","properties":{"z":{},"a":{}}},"messages":[{"role":"user","content":"x"}]}`},
		"/api/generate":             {`{` + odd + `,"model":"m","raw":true,"prompt":"x","context":[1,2,3]}`},
	} {
		for _, body := range bodies {
			u := new(upstream)
			over(t, u, settings(), func(r *rig) {
				require.Equal(r, 200, r.do(r.request("POST", path, body)).StatusCode, path)
				require.Equal(r, strings.Replace(body, `"model":"m"`, `"model":"served"`, 1), u.body)
			})
		}
	}
	random := rand.NewChaCha8([32]byte{7})
	file := make([]byte, 200_000)
	_, _ = random.Read(file)
	upload := "--XX\r\ncontent-disposition: form-data; name=\"language\"\r\n\r\nko\r\n--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n" +
		"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"\xed\x95\x9c.wav\"\r\nContent-Type: audio/wav\r\nX-Unknown: 1\r\n\r\n" + string(file) + "\r\n--XX--\r\n"
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		require.Equal(r, 200, r.do(r.request("POST", "/v1/audio/transcriptions", upload, "Content-Type", formType)).StatusCode)
		require.True(r, strings.Replace(upload, "\r\n\r\nm\r\n", "\r\n\r\nserved\r\n", 1) == u.body, "the form was altered")
	})
}

// D05: a photo of 2 MB costs what a photo costs, in the form of every API that takes one.
func TestCase_D05_APhotoIsNoBookOnAnySurface(t *testing.T) {
	random := rand.NewChaCha8([32]byte{5})
	raw := make([]byte, 1_500_000)
	_, _ = random.Read(raw)
	copy(raw, "\xff\xd8\xff\xe0\x00\x10JFIF")
	photo := base64.StdEncoding.EncodeToString(raw)
	s := settings()
	s.BodyLimit = 8 << 20
	u := new(upstream)
	over(t, u, s, func(r *rig) {
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,` + photo + `"}}]}]}`,
			"/v1/responses":        `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/jpeg;base64,` + photo + `"}]}]}`,
			"/v1/messages":         `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"` + photo + `"}}]}]}`,
			"/api/chat":            `{"model":"m","messages":[{"role":"user","content":"What is this?","images":["` + photo + `"]}]}`,
			"/api/generate":        `{"model":"m","prompt":"What is this?","images":["` + photo + `"]}`,
		} {
			require.Equal(r, 200, r.do(r.request("POST", path, body)).StatusCode)
			require.Less(r, u.last.Input.Tokens, 20_000, path)
			require.Greater(r, u.last.Input.Tokens, 500, path)
			require.Equal(r, admission.Normal, u.last.Input.Class(), path)
		}
	})
}

// F05: of two models whose names differ only in case each request reaches its own.
func TestCase_F05_NamesThatDifferInCaseAreTwoModels(t *testing.T) {
	u := new(upstream)
	eachRow(t, u, settings(), func(r *rig, e *endpoint, row sample) {
		for _, id := range []string{"m", "M"} {
			require.Equal(r, 200, r.ask(e, row, id).StatusCode, e.path)
			require.Equal(r, admission.GroupKey(id), u.last.Group, e.path)
		}
		u.last = nil
		require.Equal(r, 404, r.ask(e, row, "TINY").StatusCode, e.path)
		require.Nil(r, u.last)
	})
}

// I04, I05, I08: a page may ask on every path with all that the official client sends, without a key; that takes no slot and leaves no line in the log.
func TestCase_I04_I05_I08_PreflightOfEveryRow(t *testing.T) {
	s := settings()
	s.Keys = auth.NewKeyring(auth.Credentials{})
	s.AllowedOrigins = []string{page}
	u := new(upstream)
	const names = "authorization,content-type,x-api-key,anthropic-version,anthropic-dangerous-direct-browser-access,x-stainless-arch,x-stainless-helper-method," +
		"x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout"
	eachRow(t, u, s, func(r *rig, e *endpoint, _ sample) {
		got := r.do(r.request("OPTIONS", e.path, "", "Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", names))
		require.Equal(r, 204, got.StatusCode, e.path)
		require.Equal(r, page, got.Header.Get("Access-Control-Allow-Origin"))
		for name := range strings.SplitSeq(names, ",") {
			require.Contains(r, got.Header.Get("Access-Control-Allow-Headers"), name)
		}
		require.Contains(r, got.Header.Get("Access-Control-Allow-Methods"), "POST")
		require.Empty(r, r.log.String())
	})
	require.Nil(t, u.last)
}
