//go:build engines

package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func init() {
	clients["anthropic-sdk-go"] = client{
		run: runAnthropicGo, stop: "end_turn", length: "max_tokens", tool: "tool_use", anthropic: true,
		notFound: "*apierror.Error", unauthorized: "*apierror.Error", invalid: "*apierror.Error",
	}
}

// runAnthropicGo is an application of the official Go library of Anthropic,
// which adds /v1/messages itself.
func runAnthropicGo(ctx context.Context, at endpoint, scenario string, a ask, attempted func(int)) (seen, error) {
	wire := &counting{told: attempted}
	app := &anthropicApp{ask: a, Client: anthropic.NewClient(
		option.WithBaseURL(strings.TrimSuffix(at.baseURL, "/v1")), option.WithAPIKey(at.key), option.WithMaxRetries(a.Retries),
		option.WithHTTPClient(&http.Client{Transport: wire}))}
	scenes := map[string]func(context.Context) error{
		"chat": app.chat, "tools": app.tools, "stream": app.stream, "abort": app.stream, "tools stream": app.toolStream,
		"count tokens": app.countTokens,
	}
	play := scenes[scenario]
	if play == nil {
		return seen{}, fmt.Errorf("anthropic-sdk-go has no scenario %q", scenario)
	}
	err := play(ctx)
	app.seen.Attempts = wire.attempts
	var refused *anthropic.Error
	if errors.As(err, &refused) {
		var body struct {
			Error struct{ Type, Code string }
		}
		_ = json.Unmarshal([]byte(refused.RawJSON()), &body) // another server's error has another form
		app.seen.Error = &refusal{
			Kind: fmt.Sprintf("%T", refused), Status: refused.StatusCode, Code: body.Error.Code, Type: body.Error.Type, Message: refused.Error(),
		}
		err = nil
	}
	return app.seen, err
}

type anthropicApp struct {
	anthropic.Client
	ask  ask
	seen seen
}

func (p *anthropicApp) said() []anthropic.MessageParam {
	return []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(p.ask.Prompt))}
}

func (p *anthropicApp) params() anthropic.MessageNewParams {
	limit := p.ask.MaxTokens
	if limit == 0 {
		limit = 1000
	}
	return anthropic.MessageNewParams{Model: anthropic.Model(p.ask.Model), MaxTokens: int64(limit), Messages: p.said()}
}

func (p *anthropicApp) withTools() anthropic.MessageNewParams {
	all := p.params()
	all.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(
		anthropic.ToolInputSchemaParam{Properties: zoneOnly["properties"], Required: []string{"zone"}}, "get_time")}
	return all
}

func (p *anthropicApp) chat(ctx context.Context) error  { return p.plain(ctx, p.params()) }
func (p *anthropicApp) tools(ctx context.Context) error { return p.plain(ctx, p.withTools()) }

func (p *anthropicApp) plain(ctx context.Context, params anthropic.MessageNewParams) error {
	done, err := p.Messages.New(ctx, params)
	if err != nil {
		return err
	}
	p.told(done)
	return nil
}

func (p *anthropicApp) told(done *anthropic.Message) {
	p.seen.Text, p.seen.Finish, p.seen.Models = "", string(done.StopReason), []string{string(done.Model)}
	p.seen.Input = int(done.Usage.InputTokens + done.Usage.CacheReadInputTokens)
	p.seen.Output = int(done.Usage.OutputTokens)
	for _, block := range done.Content {
		switch b := block.AsAny().(type) {
		case anthropic.TextBlock:
			p.seen.Text += b.Text
		case anthropic.ToolUseBlock:
			p.seen.called(b.Name, string(b.Input))
		}
	}
}

func (p *anthropicApp) stream(ctx context.Context) error     { return p.streamed(ctx, p.params()) }
func (p *anthropicApp) toolStream(ctx context.Context) error { return p.streamed(ctx, p.withTools()) }

// streamed reads with the library's own accumulator, which is strict about the
// order of events.
func (p *anthropicApp) streamed(ctx context.Context, params anthropic.MessageNewParams) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := p.Messages.NewStreaming(ctx, params)
	defer func() { _ = events.Close() }()
	var all anthropic.Message
	for events.Next() {
		e := events.Current()
		if err := all.Accumulate(e); err != nil {
			return err
		}
		if e.Type != "content_block_delta" || e.Delta.Text == "" {
			continue
		}
		p.seen.Text += e.Delta.Text
		if p.seen.Chunks++; p.seen.Chunks == p.ask.AbortAfter {
			p.seen.Aborted = true
			return nil
		}
	}
	if err := events.Err(); err != nil {
		return err
	}
	p.told(&all)
	return nil
}

func (p *anthropicApp) countTokens(ctx context.Context) error {
	n, err := p.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: anthropic.Model(p.ask.Model), Messages: p.said()})
	if err != nil {
		return err
	}
	p.seen.Input = int(n.InputTokens)
	return nil
}
