package normalize

import (
	"crypto/rand"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

const (
	// deltaLimit bounds the text of one event in bytes, so that every client's
	// message limit admits it.
	deltaLimit = 256 << 10
	// ToolLimit bounds the tool calls of one answer, in bytes of their names, ids
	// and arguments, all together.
	ToolLimit = 2 << 20
	// toolCount bounds their number.
	toolCount = 512
	// excerptLimit bounds what is quoted of a provider's error, in bytes.
	excerptLimit = 4 << 10
)

// events gathers what a reader has found, as bytes for the wire.
type events struct {
	out   []byte
	tools []*toolCall
	// toolBytes is the size of tools so far.
	toolBytes int
	usage     *inferencev1.Usage
	// over is true after completed or failed: nothing comes after them.
	over bool
	// newID makes the id of a tool call that came without.
	newID func() string
}

// toolCall is a tool call whose pieces may be still to come.
type toolCall struct {
	id, name  string
	arguments []byte
}

func newEvents() *events {
	return &events{newID: func() string { return "call_" + rand.Text() }}
}

func (e *events) emit(r *inferencev1.RunResponse) {
	e.out = protowire.AppendVarint(e.out, uint64(proto.Size(r)))
	// Marshalling fails only for strings that are not UTF-8, and there is none: they
	// come out of a JSON decoder, or are made valid where they do not.
	e.out, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(e.out, r)
}

// text emits a piece of the answer.
func (e *events) text(s string) {
	for piece := range pieces(s) {
		e.emit(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Delta{Delta: &inferencev1.Delta{Text: piece}}})
	}
}

// reasoning emits a piece of the reasoning.
func (e *events) reasoning(s string) {
	for piece := range pieces(s) {
		e.emit(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_ReasoningDelta{ReasoningDelta: &inferencev1.ReasoningDelta{Text: piece}}})
	}
}

// pieces cuts s between characters; it yields nothing for an empty s.
func pieces(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(s) > 0 {
			n := min(len(s), deltaLimit)
			for n < len(s) && !utf8.RuneStart(s[n]) {
				n--
			}
			if !yield(s[:n]) {
				return
			}
			s = s[n:]
		}
	}
}

// tool begins a tool call, or finds that there are too many.
func (e *events) tool() (*toolCall, error) {
	if len(e.tools) == toolCount {
		return nil, fmt.Errorf("the provider asked for more than %d tool calls", toolCount)
	}
	call := &toolCall{}
	e.tools = append(e.tools, call)
	return call, nil
}

// piece adds what has come of a tool call. Some servers repeat id and name.
func (e *events) piece(call *toolCall, id, name, arguments string) error {
	if call.id == "" {
		call.id = id
	}
	if call.name == "" {
		call.name = name
	}
	e.toolBytes += len(id) + len(name) + len(arguments)
	if e.toolBytes > ToolLimit {
		return fmt.Errorf("the provider's tool calls are larger than %d bytes", ToolLimit)
	}
	call.arguments = append(call.arguments, arguments...)
	return nil
}

// complete ends a whole answer.
func (e *events) complete(reason string) {
	if e.over {
		return
	}
	e.over = true
	for _, call := range e.tools {
		if call.id == "" {
			call.id = e.newID()
		}
		e.emit(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_ToolCall{
			ToolCall: &inferencev1.ToolCall{Id: call.id, Name: call.name, ArgumentsJson: string(call.arguments)},
		}})
	}
	if e.usage != nil {
		e.emit(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Usage{Usage: e.usage}})
	}
	finish, known := finishes[reason]
	if !known {
		finish = inferencev1.FinishReason_FINISH_REASON_OTHER
	}
	if finish == inferencev1.FinishReason_FINISH_REASON_STOP && len(e.tools) > 0 {
		finish = inferencev1.FinishReason_FINISH_REASON_TOOL_CALLS // Ollama, and some others, say stop
	}
	e.tools = nil
	e.emit(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Completed{Completed: &inferencev1.Completed{FinishReason: finish, ProviderReason: reason}}})
}

// finishes are the words of both forms.
var finishes = map[string]inferencev1.FinishReason{
	"stop":           inferencev1.FinishReason_FINISH_REASON_STOP,
	"length":         inferencev1.FinishReason_FINISH_REASON_LENGTH,
	"tool_calls":     inferencev1.FinishReason_FINISH_REASON_TOOL_CALLS,
	"function_call":  inferencev1.FinishReason_FINISH_REASON_TOOL_CALLS,
	"content_filter": inferencev1.FinishReason_FINISH_REASON_CONTENT_FILTER,
}

// fail ends an answer that is the provider's own error. status is 0 inside a
// stream that has begun well and names none.
func (e *events) fail(status int, said []byte, retryAfter int) {
	if e.over {
		return
	}
	e.over = true
	message := "The provider reported an error inside its answer."
	if status != 0 {
		message = fmt.Sprintf("The provider answered with status %d.", status)
	}
	e.emit(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Failed{Failed: &inferencev1.Failure{
		Reason: inferencev1.FailureReason_FAILURE_REASON_PROVIDER_ERROR, Message: message, MayHaveRun: true,
		ProviderStatus: uint32(status), ProviderBody: excerpt(said), RetryAfterSeconds: uint32(retryAfter),
	}}})
}

// excerpt is the beginning of what a provider said, as text.
func excerpt(said []byte) string {
	return strings.ToValidUTF8(string(said[:min(len(said), excerptLimit)]), "")
}
