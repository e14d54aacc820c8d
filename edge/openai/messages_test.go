package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
)

const (
	messageStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"served\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n"
	messageDelta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n"
	messageStop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

	askedForStream = `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

// requireErrorEvent checks that a stream ends with the messages API's own error event.
func requireErrorEvent(r *rig, got reply, code, kind string) {
	r.Helper()
	require.NoError(r, got.err)
	require.NotContains(r, got.body, "[DONE]")
	require.True(r, strings.HasSuffix(got.body, "\n\n"))
	parts := strings.Split(strings.TrimSuffix(got.body, "\n\n"), "\n\n")
	data, named := strings.CutPrefix(parts[len(parts)-1], "event: error\ndata: ")
	require.True(r, named, got.body)
	var e struct {
		Type      string
		Error     struct{ Type, Message, Code string }
		RequestID string `json:"request_id"`
	}
	require.NoError(r, json.Unmarshal([]byte(data), &e), data)
	require.Equal(r, []string{"error", kind, code, got.Header.Get("X-Request-Id")}, []string{e.Type, e.Error.Type, e.Error.Code, e.RequestID})
	require.NotEmpty(r, e.Error.Message)
}

func TestCase_A10_MessagesAreWholeWithTheirLastEventOnly(t *testing.T) {
	over(t, answer(ended(events(messageStart, messageDelta+messageStop))...), settings(), func(r *rig) {
		got := r.do(r.request("POST", "/v1/messages", askedForStream))
		require.NoError(r, got.err)
		require.Equal(r, strings.Replace(messageStart, "served", "m", 1)+messageDelta+messageStop, got.body)
	})
	for name, sent := range map[string][]string{
		"in the middle":            {messageStart},
		"before its last event":    {messageStart, messageDelta},
		"inside its last event":    {messageStart, messageDelta, messageStop[:len(messageStop)-4]},
		"with an end of another's": {messageStart, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, answer(ended(events(sent...))...), settings(), func(r *rig) {
				requireErrorEvent(r, r.do(r.request("POST", "/v1/messages", askedForStream)), "provider_disconnected", "api_error")
			})
			lost := &dispatch.FailedError{Code: dispatch.ProviderTimeout, Started: true, HandedOff: true}
			over(t, answer(events(sent...)...).then(lost), settings(), func(r *rig) {
				requireErrorEvent(r, r.do(r.request("POST", "/v1/messages", askedForStream)), "provider_timeout", "timeout_error")
			})
		})
	}
}

// Nothing is said after the last event, even if the provider is lost then.
func TestNothingFollowsTheLastEvent(t *testing.T) {
	lost := &dispatch.FailedError{Code: dispatch.ProviderDisconnected, Started: true, HandedOff: true}
	completed := "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"m\"}}\n\n"
	for path, last := range map[string]string{"/v1/messages": messageStop, "/v1/responses": completed} {
		over(t, answer(events(last)...).then(lost), settings(), func(r *rig) {
			got := r.do(r.request("POST", path, askedForStream))
			require.NoError(r, got.err)
			require.Equal(r, last, got.body)
		})
	}
}

// A provider's own error, whole or as an event, passes as it is.
func TestMessagesPassTheProvidersOwnErrors(t *testing.T) {
	const theirs = `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`
	over(t, answer(whole(529, "application/json", theirs)), settings(), func(r *rig) {
		got := r.do(r.request("POST", "/v1/messages", askedForStream))
		require.Equal(r, 529, got.StatusCode)
		require.Equal(r, theirs, got.body)
		require.Equal(r, got.Header.Get("X-Request-Id"), got.Header.Get("Request-Id"))
	})
	event := "event: error\ndata: " + theirs + "\n\n"
	over(t, answer(ended(events(messageStart, event))...), settings(), func(r *rig) {
		got := r.do(r.request("POST", "/v1/messages", askedForStream))
		require.Equal(r, strings.Replace(messageStart, "served", "m", 1)+event, got.body)
	})
}

func TestUnknownPathsBelowMessagesAreAnthropics(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		got := r.do(r.request("POST", "/v1/messages/batches", "{}"))
		require.Equal(r, 404, got.StatusCode)
		require.Contains(r, got.body, `"type":"not_found_error"`)
		require.NotEmpty(r, got.Header.Get("Request-Id"))
	})
}

// What the kits read of a provider's header reaches them; the request's id is the Edge's.
func TestHeadersOfTheKitsReachTheClient(t *testing.T) {
	f := dispatch.Frame{End: true, Body: []byte("{}"), Head: head(429, "application/json",
		dispatch.Header{Name: "Retry-After-Ms", Value: "1500"}, dispatch.Header{Name: "X-Should-Retry", Value: "true"},
		dispatch.Header{Name: "Anthropic-Ratelimit-Tokens-Remaining", Value: "7"}, dispatch.Header{Name: "Openai-Processing-Ms", Value: "9"},
		dispatch.Header{Name: "Request-Id", Value: "theirs"}, dispatch.Header{Name: "X-Request-Id", Value: "theirs"}, dispatch.Header{Name: "Set-Cookie", Value: "a=b"})}
	over(t, answer(f), settings(), func(r *rig) {
		got := r.do(r.request("POST", "/v1/messages", askedForStream, "X-Request-Id", "mine"))
		for name, value := range map[string]string{
			"Retry-After-Ms": "1500", "X-Should-Retry": "true", "Anthropic-Ratelimit-Tokens-Remaining": "7", "Openai-Processing-Ms": "9",
			"Request-Id": "mine", "X-Request-Id": "mine", "Set-Cookie": "",
		} {
			require.Equal(r, value, got.Header.Get(name), name)
		}
	})
}

// The catalogue has the form of whoever asks: only clients of the messages API name its version.
func TestCase_F13_TheCatalogueAsMessagesClientsReadIt(t *testing.T) {
	s := settings()
	s.Models[0].ContextWindow = 4096
	over(t, new(upstream), s, func(r *rig) {
		get := func(path string) reply {
			req := r.request("GET", path, "")
			req.Header.Set("Anthropic-Version", "2023-06-01")
			return r.do(req)
		}
		got := get("/v1/models?limit=20")
		var page struct {
			Data    []map[string]any
			HasMore *bool  `json:"has_more"`
			FirstID string `json:"first_id"`
			LastID  string `json:"last_id"`
		}
		require.NoError(r, json.Unmarshal([]byte(got.body), &page))
		require.Len(r, page.Data, len(s.Models))
		created := s.Created.UTC().Format("2006-01-02T15:04:05Z")
		id := s.Models[0].ID
		require.Equal(r, map[string]any{"type": "model", "id": id, "display_name": id, "created_at": created, "max_input_tokens": 4096.}, page.Data[0])
		require.False(r, *page.HasMore)
		require.Equal(r, []string{id, s.Models[len(s.Models)-1].ID}, []string{page.FirstID, page.LastID})

		one := get("/v1/models/" + id)
		require.Contains(r, one.body, `"type":"model"`)
		none := get("/v1/models/none")
		require.Equal(r, 404, none.StatusCode)
		require.Contains(r, none.body, `{"type":"error","error":{"type":"not_found_error"`)
		require.NotEmpty(r, none.Header.Get("Request-Id"))

		require.Contains(r, r.do(r.request("GET", "/v1/models", "")).body, `"object":"list"`, "all others get OpenAI's")
	})
}
