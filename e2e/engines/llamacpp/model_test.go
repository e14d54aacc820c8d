package llamacpp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGenerate(t *testing.T) {
	schema := `{"type":"object","properties":{"n":{"type":"integer"},"ok":{"type":"boolean"},"c":{"enum":["red","blue"]},"l":{"type":"array"}}}`
	for _, c := range []struct {
		name, prompt string
		tools        bool
		schema       string
		stops        []string
		room         int
		finish, stop string
		tokens       int
		text, reason string
	}{
		{"counts", "go 97", false, "", nil, 100, "stop", "", 4, " 98 99 100", ""},
		{"cut short", "go 97", false, "", nil, 2, "length", "", 2, " 98 99", ""},
		{"no room", "go 97", false, "", nil, 0, "length", "", 0, "", ""},
		{"goes round", "go 898", false, "", nil, 3, "length", "", 3, " 899 500 501", ""},
		{"says nothing", "go 950", false, "", nil, 9, "stop", "", 1, "", ""},
		{"no number", "count", false, "", nil, 2, "length", "", 2, " 1 2", ""},
		{"reasons", "go 980", false, "", nil, 6, "length", "", 6, " 1 2", " let me"},
		{"no tool offered", "go 990", false, "", nil, 9, "stop", "", 1, "", ""},
		{"stop sequence", "go 5", false, "", []string{" 12", " 9"}, 50, "stop", " 9", 4, " 6 7 8", ""},
		{"schema", "go 5", false, schema, nil, 99, "stop", "", 40, `{"n": 1,"ok": false,"c": "red","l": []}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s json.RawMessage
			if c.schema != "" {
				s = json.RawMessage(c.schema)
			}
			g := generate(c.prompt, c.tools, s, c.stops, c.room)
			for g.more() {
			}
			assert.Equal(t, c.text, g.text())
			assert.Equal(t, c.reason, g.reasoning())
			assert.Equal(t, c.finish, g.finish)
			assert.Equal(t, c.stop, g.stop)
			assert.Equal(t, c.tokens, g.tokens())
		})
	}
}

func TestGenerateToolCall(t *testing.T) {
	g := generate("go 990", true, nil, nil, 60)
	assert.Equal(t, "get_time", g.tool())
	assert.JSONEq(t, `{"zone":"utc"}`, g.arguments())
	assert.Equal(t, finishTools, g.finish)
	assert.Equal(t, 8, g.tokens())
}

func TestTokenize(t *testing.T) {
	for text, want := range map[string]int{"": 0, " 41": 1, "41": 2, " 041": 4, " 1234": 2, "a 7": 2, " 0": 1, "é": 2} {
		assert.Len(t, tokenize(text), want, text)
		var all strings.Builder
		for _, token := range tokenize(text) {
			all.WriteString(token.piece)
		}
		assert.Equal(t, text, all.String())
	}
}
