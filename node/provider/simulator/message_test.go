package simulator

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

const (
	ask   = `{"model":"m","max_tokens":6,"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"hello there"}]}]`
	input = `{"model":"m","instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"hello there"}]}]`
	said  = "[IOP simulator] You said: hello there"
)

// events are the names and the data of a stream.
func events(t *testing.T, body string) (names []string, data []map[string]any) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, rest, found := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		require.True(t, found, event)
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(rest), &fields), rest)
		assert.Equal(t, name, fields["type"])
		names, data = append(names, name), append(data, fields)
	}
	return names, data
}

func TestMessagesHoldTheSameWordsWholeAndStreamed(t *testing.T) {
	c := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{})
	status, body, err := post(t, c, "/v1/messages", ask+`}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"id":"sim-1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"`+said+`"}],
		"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":4,"output_tokens":6}}`, withID(t, body, "sim-1"))

	_, body, err = post(t, c, "/v1/messages", ask+`,"stream":true}`)
	require.NoError(t, err)
	names, data := events(t, body)
	assert.Equal(t, []string{"message_start", "content_block_start"}, names[:2])
	assert.Equal(t, []string{"content_block_stop", "message_delta", "message_stop"}, names[len(names)-3:])
	var text strings.Builder
	for i, name := range names {
		if name == "content_block_delta" {
			text.WriteString(data[i]["delta"].(map[string]any)["text"].(string))
		}
	}
	assert.Equal(t, said, text.String())
	assert.Equal(t, "m", data[0]["message"].(map[string]any)["model"])

	_, body, err = post(t, c, "/v1/messages/count_tokens", ask+`}`)
	require.NoError(t, err)
	assert.JSONEq(t, `{"input_tokens":4}`, body)
}

func TestResponsesHoldTheSameWordsWholeAndStreamed(t *testing.T) {
	c := client(t, clockwork.NewFakeClockAt(time.Unix(1700000000, 0)), &runtimev1.Simulator{AnswerTokens: 6})
	_, body, err := post(t, c, "/v1/responses", input+`}`)
	require.NoError(t, err)
	var whole struct {
		Object, Status, Model string
		Output                []struct{ Content []struct{ Type, Text string } }
		Usage                 map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(body), &whole), body)
	assert.Equal(t, []string{"response", "completed", "m", "output_text", said},
		[]string{whole.Object, whole.Status, whole.Model, whole.Output[0].Content[0].Type, whole.Output[0].Content[0].Text})
	assert.EqualValues(t, 4, whole.Usage["input_tokens"])
	assert.EqualValues(t, 6, whole.Usage["output_tokens"])

	for more, last := range map[string]string{"": "response.completed", `,"max_output_tokens":3`: "response.incomplete"} {
		_, body, err = post(t, c, "/v1/responses", input+more+`,"stream":true}`)
		require.NoError(t, err)
		names, data := events(t, body)
		assert.Equal(t, []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"}, names[:4])
		assert.Equal(t, []string{"response.output_text.done", "response.content_part.done", "response.output_item.done", last}, names[len(names)-4:])
		for i := range data {
			assert.EqualValues(t, i, data[i]["sequence_number"])
		}
		assert.True(t, strings.HasPrefix(said, data[len(data)-4]["text"].(string)))
	}

	_, body, err = post(t, c, "/v1/responses", `{"model":"m","input":"hello there"}`)
	require.NoError(t, err)
	assert.Contains(t, body, said)
	status, _, err := post(t, c, "/v1/responses", `{"model":"m","input":7}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, status)
}

func TestStreamsWithoutChoicesBreakOffBeforeTheirLastEvent(t *testing.T) {
	c := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{FailEvery: 1, FailMode: "disconnect"})
	for path, body := range map[string]string{"/v1/messages": ask, "/v1/responses": input} {
		_, got, err := post(t, c, path, body+`,"stream":true}`)
		require.Error(t, err)
		assert.NotContains(t, got, "message_stop")
		assert.NotContains(t, got, "response.completed")
		_, _, err = post(t, c, path, body+`}`)
		require.Error(t, err)
	}
}

// withID puts a fixed id in the place of the answer's own, which has to be a simulator's.
func withID(t *testing.T, body, id string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &fields), body)
	require.True(t, strings.HasPrefix(fields["id"].(string), "sim-"))
	fields["id"] = id
	raw, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(raw)
}

func TestErrorsHaveTheFormOfTheAPIThatWasAsked(t *testing.T) {
	c := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{Models: []string{"m"}, ContextTokens: 3})
	for _, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/messages", ask + `}`, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 4 tokens > 3 maximum"}}`},
		{"/v1/messages/count_tokens", `{"model":"other"}`, 404, `{"type":"error","error":{"type":"not_found_error","message":"the IOP simulator has no model \"other\""}}`},
		{"/v1/chat/completions", `{"model":"other"}`, 404,
			`{"error":{"type":"not_found_error","code":404,"message":"the IOP simulator has no model \"other\""}}`},
	} {
		status, body, err := post(t, c, test.path, test.body)
		require.NoError(t, err)
		assert.Equal(t, test.status, status)
		assert.JSONEq(t, test.want, body)
	}
	failing := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{FailEvery: 1})
	status, body, err := post(t, failing, "/v1/messages", ask+`}`)
	require.NoError(t, err)
	assert.Equal(t, 500, status)
	assert.Contains(t, body, `"type":"api_error"`)
}
