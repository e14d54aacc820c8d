//go:build engines

package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

func init() {
	clients["openai-go"] = client{
		run: runOpenAIGo, stop: "stop", length: "length", tool: "tool_calls",
		notFound: "*apierror.Error", unauthorized: "*apierror.Error", invalid: "*apierror.Error",
	}
}

// counting notes each HTTP answer that a library gets, its retries included.
type counting struct {
	told func(status int) // may be nil

	mu       sync.Mutex
	attempts []attempt
	last     time.Time
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	pause := 0
	if !c.last.IsZero() {
		pause = int(time.Since(c.last).Milliseconds())
	}
	c.mu.Unlock()
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	c.mu.Lock()
	c.last = time.Now()
	c.attempts = append(c.attempts, attempt{Status: res.StatusCode, RetryAfter: after, Pause: pause})
	c.mu.Unlock()
	if c.told != nil {
		c.told(res.StatusCode)
	}
	return res, nil
}

// called adds a tool call.
func (s *seen) called(name, args string) {
	s.Tools = append(s.Tools, struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}{name, json.RawMessage(args)})
}

// The tool and the schema that scenarios offer.
var (
	zoneOnly = map[string]any{
		"type": "object", "properties": map[string]any{"zone": map[string]any{"type": "string", "enum": []string{"utc", "kst"}}},
		"required": []string{"zone"}, "additionalProperties": false,
	}
	colourOnly = map[string]any{
		"type": "object", "properties": map[string]any{"colour": map[string]any{"enum": []string{"red", "blue"}}},
		"required": []string{"colour"}, "additionalProperties": false,
	}
)

// runOpenAIGo is an application of the official Go library of OpenAI.
func runOpenAIGo(ctx context.Context, at endpoint, scenario string, a ask, attempted func(int)) (seen, error) {
	wire := &counting{told: attempted}
	c := openai.NewClient(option.WithBaseURL(at.baseURL), option.WithAPIKey(at.key), option.WithMaxRetries(a.Retries),
		option.WithHTTPClient(&http.Client{Transport: wire}))
	app := &openaiApp{Client: c, ask: a}
	scenes := map[string]func(context.Context) error{
		"chat": app.chat, "tools": app.tools, "structured": app.structured,
		"stream": app.stream, "abort": app.stream, "tools stream": app.toolStream,
		"completions": app.completions, "responses": app.responses, "responses stream": app.responseStream,
		"embeddings": app.embeddings, "models": app.models, "model": app.model,
	}
	play := scenes[scenario]
	if play == nil {
		return seen{}, fmt.Errorf("openai-go has no scenario %q", scenario)
	}
	err := play(ctx)
	app.seen.Attempts = wire.attempts
	var refused *openai.Error
	if errors.As(err, &refused) {
		app.seen.Error = &refusal{
			Kind: fmt.Sprintf("%T", refused), Status: refused.StatusCode, Code: refused.Code, Type: refused.Type,
			Message: fmt.Sprint(refused.StatusCode, " ", refused.Message), // its Error() leaves the server's words out
		}
		err = nil
	}
	return app.seen, err
}

type openaiApp struct {
	openai.Client
	ask  ask
	seen seen
}

func (o *openaiApp) params() openai.ChatCompletionNewParams {
	return call{Model: o.ask.Model, Prompt: o.ask.Prompt, MaxTokens: o.ask.MaxTokens}.params()
}

func clockTool() []openai.ChatCompletionToolUnionParam {
	return []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "get_time", Description: openai.String("The time in a zone"), Parameters: zoneOnly,
	})}
}

func (o *openaiApp) chat(ctx context.Context) error { return o.plain(ctx, o.params()) }

func (o *openaiApp) tools(ctx context.Context) error {
	p := o.params()
	p.Tools = clockTool()
	return o.plain(ctx, p)
}

func (o *openaiApp) structured(ctx context.Context) error {
	p := o.params()
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "colour", Strict: openai.Bool(true), Schema: colourOnly},
	}
	if err := o.plain(ctx, p); err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(o.seen.Text), &object); err != nil {
		return err
	}
	var err error
	o.seen.Object, err = json.Marshal(object)
	return err
}

func (o *openaiApp) plain(ctx context.Context, p openai.ChatCompletionNewParams) error {
	done, err := o.Chat.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	o.told(done)
	return nil
}

func (o *openaiApp) told(done *openai.ChatCompletion) {
	o.seen.Models = []string{done.Model}
	o.seen.Input, o.seen.Output = int(done.Usage.PromptTokens), int(done.Usage.CompletionTokens)
	if len(done.Choices) != 1 {
		return
	}
	choice := done.Choices[0]
	o.seen.Text, o.seen.Finish = choice.Message.Content, choice.FinishReason
	for _, t := range choice.Message.ToolCalls {
		o.seen.called(t.Function.Name, t.Function.Arguments)
	}
}

func (o *openaiApp) stream(ctx context.Context) error { return o.streamed(ctx, o.params()) }

func (o *openaiApp) toolStream(ctx context.Context) error {
	p := o.params()
	p.Tools = clockTool()
	return o.streamed(ctx, p)
}

// streamed reads with the library's own accumulator.
func (o *openaiApp) streamed(ctx context.Context, p openai.ChatCompletionNewParams) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	events := o.Chat.Completions.NewStreaming(ctx, p)
	defer func() { _ = events.Close() }()
	var all openai.ChatCompletionAccumulator
	for events.Next() {
		chunk := events.Current()
		if !all.AddChunk(chunk) {
			return fmt.Errorf("the library does not take the chunk %s", chunk.RawJSON())
		}
		if len(chunk.Choices) == 0 || chunk.Choices[0].Delta.Content == "" {
			continue
		}
		o.seen.Text += chunk.Choices[0].Delta.Content
		if o.seen.Chunks++; o.seen.Chunks == o.ask.AbortAfter {
			o.seen.Aborted = true
			return nil
		}
	}
	if err := events.Err(); err != nil {
		return err
	}
	o.told(&all.ChatCompletion)
	return nil
}

func (o *openaiApp) completions(ctx context.Context) error {
	done, err := o.Completions.New(ctx, openai.CompletionNewParams{
		Model: openai.CompletionNewParamsModel(o.ask.Model), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(o.ask.Prompt)},
	})
	if err != nil {
		return err
	}
	o.seen.Text, o.seen.Finish = done.Choices[0].Text, string(done.Choices[0].FinishReason)
	o.seen.Models = []string{done.Model}
	o.seen.Input, o.seen.Output = int(done.Usage.PromptTokens), int(done.Usage.CompletionTokens)
	return nil
}

func (o *openaiApp) question() responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: shared.ResponsesModel(o.ask.Model), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(o.ask.Prompt)},
	}
}

func (o *openaiApp) responses(ctx context.Context) error {
	done, err := o.Responses.New(ctx, o.question())
	if err != nil {
		return err
	}
	o.responded(done)
	return nil
}

func (o *openaiApp) responded(done *responses.Response) {
	o.seen.Text, o.seen.Finish = done.OutputText(), string(done.Status)
	o.seen.Models = []string{done.Model}
	o.seen.Input, o.seen.Output = int(done.Usage.InputTokens), int(done.Usage.OutputTokens)
}

func (o *openaiApp) responseStream(ctx context.Context) error {
	events := o.Responses.NewStreaming(ctx, o.question())
	defer func() { _ = events.Close() }()
	for events.Next() {
		switch e := events.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			o.seen.Chunks++
		case responses.ResponseCompletedEvent:
			o.responded(&e.Response)
		}
	}
	return events.Err()
}

func (o *openaiApp) embeddings(ctx context.Context) error {
	done, err := o.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: openai.EmbeddingModel(o.ask.Model), Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: o.ask.Inputs},
	})
	if err != nil {
		return err
	}
	o.seen.Models, o.seen.Input = []string{done.Model}, int(done.Usage.PromptTokens)
	for _, d := range done.Data {
		o.seen.Dims = append(o.seen.Dims, len(d.Embedding))
	}
	return nil
}

func (o *openaiApp) models(ctx context.Context) error {
	pages := o.Models.ListAutoPaging(ctx)
	for pages.Next() {
		o.seen.IDs = append(o.seen.IDs, pages.Current().ID)
	}
	return pages.Err()
}

func (o *openaiApp) model(ctx context.Context) error {
	m, err := o.Models.Get(ctx, o.ask.Model)
	if err != nil {
		return err
	}
	o.seen.IDs = []string{m.ID}
	return nil
}
