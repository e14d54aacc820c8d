package normalize

import (
	"bytes"
	"encoding/json"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// ollamaReader reads the lines of /api/chat.
type ollamaReader struct{ *events }

func newOllamaReader(e *events) reader { return &ollamaReader{e} }

type ollamaLine struct {
	Error   json.RawMessage `json:"error"`
	Message struct {
		Content   string           `json:"content"`
		Thinking  string           `json:"thinking"`
		ToolCalls []ollamaToolCall `json:"tool_calls"`
	} `json:"message"`
	Done            bool   `json:"done"`
	DoneReason      string `json:"done_reason"`
	PromptEvalCount uint64 `json:"prompt_eval_count"`
	EvalCount       uint64 `json:"eval_count"`
}

// line implements reader.
func (r *ollamaReader) line(line []byte) error {
	line = bytes.TrimSpace(line)
	if r.over || len(line) == 0 {
		return nil
	}
	var l ollamaLine
	if err := json.Unmarshal(line, &l); err != nil {
		return errNoJSON
	}
	if len(l.Error) > 0 && string(l.Error) != "null" {
		r.fail(0, line, 0)
		return nil
	}
	r.reasoning(l.Message.Thinking)
	r.text(l.Message.Content)
	for i := range l.Message.ToolCalls {
		t := &l.Message.ToolCalls[i]
		call, err := r.tool()
		if err != nil {
			return err
		}
		if err := r.piece(call, t.ID, t.Function.Name, argumentsOf(t.Function.Arguments)); err != nil {
			return err
		}
	}
	if l.Done {
		r.usage = &inferencev1.Usage{InputTokens: l.PromptEvalCount, OutputTokens: l.EvalCount}
		r.complete(l.DoneReason)
	}
	return nil
}

// end has nothing to complete: only a line with done does.
func (r *ollamaReader) end() error { return nil }
