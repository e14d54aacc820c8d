//go:build engines

package engines

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// openaiGo is the official Go library, in this process.
type openaiGo struct{}

func (openaiGo) name() string { return "openai-go" }

func (openaiGo) client(at endpoint) openai.Client {
	return openai.NewClient(option.WithBaseURL(at.baseURL), option.WithAPIKey(at.key), option.WithMaxRetries(0))
}

func (c call) params() openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model:    c.Model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(c.Prompt)},
	}
	if c.MaxTokens > 0 {
		p.MaxTokens = openai.Int(int64(c.MaxTokens))
	}
	if c.Usage {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	return p
}

func (g openaiGo) ask(ctx context.Context, at endpoint, c call) (answer, error) {
	client := g.client(at)
	if c.Stream {
		return g.stream(ctx, client, c)
	}
	var res *http.Response
	done, err := client.Chat.Completions.New(ctx, c.params(), option.WithResponseInto(&res))
	if err != nil {
		return answer{}, err
	}
	if len(done.Choices) != 1 {
		return answer{}, fmt.Errorf("%d choices, want 1", len(done.Choices))
	}
	return answer{
		Text:             done.Choices[0].Message.Content,
		Finish:           done.Choices[0].FinishReason,
		Models:           []string{done.Model},
		CompletionTokens: int(done.Usage.CompletionTokens),
		RequestID:        res.Header.Get("X-Request-Id"),
	}, nil
}

func (openaiGo) stream(ctx context.Context, client openai.Client, c call) (answer, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var res *http.Response
	events := client.Chat.Completions.NewStreaming(ctx, c.params(), option.WithResponseInto(&res))
	defer func() { _ = events.Close() }()
	var a answer
	for events.Next() {
		chunk := events.Current()
		a.Chunks++
		if !slices.Contains(a.Models, chunk.Model) {
			a.Models = append(a.Models, chunk.Model)
		}
		for _, choice := range chunk.Choices {
			a.Text += choice.Delta.Content
			if choice.FinishReason != "" {
				a.Finish = choice.FinishReason
			}
		}
		if chunk.Usage.CompletionTokens != 0 {
			a.CompletionTokens = int(chunk.Usage.CompletionTokens)
		}
		if a.Chunks == c.AbortAfter {
			a.Aborted = true
			stop()
			break
		}
	}
	if res != nil {
		a.RequestID = res.Header.Get("X-Request-Id")
	}
	if a.Aborted {
		return a, nil
	}
	return a, events.Err()
}

func (g openaiGo) askAll(ctx context.Context, at endpoint, calls []call) ([]answer, error) {
	answers, errs := make([]answer, len(calls)), make([]error, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() { answers[i], errs[i] = g.ask(ctx, at, c) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

func (g openaiGo) refused(ctx context.Context, at endpoint, calls []call) ([]refusal, error) {
	var all []refusal
	for _, c := range calls {
		a, err := g.ask(ctx, at, c)
		if err == nil {
			return nil, fmt.Errorf("the call for %s was answered with %q, not refused", c.Model, a.Text)
		}
		var e *openai.Error
		if !errors.As(err, &e) {
			return nil, fmt.Errorf("the call for %s failed without an API error: %w", c.Model, err)
		}
		all = append(all, refusal{
			Kind: fmt.Sprintf("%T", e), Status: e.StatusCode, Code: e.Code, Type: e.Type, Message: e.Message,
			RequestID: e.Response.Header.Get("X-Request-Id"),
		})
	}
	return all, nil
}

func (g openaiGo) models(ctx context.Context, at endpoint) ([]string, error) {
	client := g.client(at)
	var ids []string
	pages := client.Models.ListAutoPaging(ctx)
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	return ids, pages.Err()
}
