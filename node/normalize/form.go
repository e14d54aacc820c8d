package normalize

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// Path is RequestBegin.path of a normalized run. No provider is ever asked for it.
const Path = "/iop.inference.v1.InferenceService/Run"

// ContentType is that of the answer of a run: RunResponse messages, each with its
// length before it as a varint.
const ContentType = "application/x-iop-run-events"

// Form is how one type of provider is spoken to.
type Form struct {
	// Path of the native request below the provider's root.
	Path string
	// request makes the native body.
	request func(*inferencev1.RunRequest, Options) (any, error)
	// reader reads the native answer.
	reader func(*events) reader
	// documents says that an answer may be one JSON document instead of a stream.
	documents bool
}

// FormOf is the form of a provider type.
func FormOf(kind string) *Form {
	if kind == "ollama" {
		return &Form{Path: "/api/chat", request: ollamaRequest, reader: newOllamaReader}
	}
	return &Form{Path: "/v1/chat/completions", reader: newOpenAIReader, documents: true,
		request: func(r *inferencev1.RunRequest, o Options) (any, error) { return openAIRequest(r, o, kind) }}
}

// Options are what a request needs to be told besides its body.
type Options struct {
	// Target is the provider's own name for the model.
	Target string
	// ContextWindow of the model group in tokens; 0 = not stated.
	ContextWindow uint64
}

// Request makes the native request out of a RunRequest. An error means that the
// run cannot be put into the provider's terms; its text quotes nothing that a
// client has said.
func (f *Form) Request(body []byte, o Options) ([]byte, error) {
	run := &inferencev1.RunRequest{}
	if err := proto.Unmarshal(body, run); err != nil {
		return nil, fmt.Errorf("the run is no iop.inference.v1.RunRequest")
	}
	native, err := f.request(run, o)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(native); err != nil {
		return nil, fmt.Errorf("the run cannot be written as JSON")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// object is text as a JSON object, its spelling kept; what says which one it is.
func object(text, what string) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace([]byte(text))
	if len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) {
		return nil, fmt.Errorf("%s is no JSON object", what)
	}
	return trimmed, nil
}

// function is a tool as both forms describe it.
type function struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// noParameters is the schema of a function without arguments.
const noParameters = `{"type":"object","properties":{}}`

func functions(tools []*inferencev1.Tool) ([]function, error) {
	all := make([]function, len(tools))
	for i, t := range tools {
		schema := t.GetParametersJson()
		if schema == "" {
			schema = noParameters
		}
		parameters, err := object(schema, fmt.Sprintf("tools[%d].parameters_json", i))
		if err != nil {
			return nil, err
		}
		all[i].Type = "function"
		f := &all[i].Function
		f.Name, f.Description, f.Parameters = t.GetName(), t.GetDescription(), parameters
	}
	return all, nil
}

// roles are the words of both forms.
var roles = map[inferencev1.Role]string{
	inferencev1.Role_ROLE_SYSTEM:    "system",
	inferencev1.Role_ROLE_USER:      "user",
	inferencev1.Role_ROLE_ASSISTANT: "assistant",
	inferencev1.Role_ROLE_TOOL:      "tool",
}

// efforts are the words of both forms.
var efforts = map[inferencev1.ReasoningEffort]string{
	inferencev1.ReasoningEffort_REASONING_EFFORT_NONE:   "none",
	inferencev1.ReasoningEffort_REASONING_EFFORT_LOW:    "low",
	inferencev1.ReasoningEffort_REASONING_EFFORT_MEDIUM: "medium",
	inferencev1.ReasoningEffort_REASONING_EFFORT_HIGH:   "high",
}

func roleOf(m *inferencev1.Message, i int) (string, error) {
	role := roles[m.GetRole()]
	if role == "" {
		return "", fmt.Errorf("messages[%d] has a role that this node's version does not know", i)
	}
	return role, nil
}
