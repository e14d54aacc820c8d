//go:build engines

package engines

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The descriptions are those that the official Go libraries' types are generated
// from; no package ships a current one itself (docs/contracts/openai-api.md).

func all[T any](stream *ssestream.Stream[T]) ([]any, error) {
	var events []any
	for stream.Next() {
		events = append(events, stream.Current())
	}
	return events, stream.Err()
}

func one[T any](v T, err error) ([]any, error) { return []any{v}, err }

// described is what is decoded of each kind of answer.
var described = map[string]func(ctx context.Context, c *openaiApp) ([]any, error){
	"chat": func(ctx context.Context, c *openaiApp) ([]any, error) {
		return one(c.Chat.Completions.New(ctx, c.params()))
	},
	"chat stream": func(ctx context.Context, c *openaiApp) ([]any, error) {
		p := c.params()
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		return all(c.Chat.Completions.NewStreaming(ctx, p))
	},
	"tools": func(ctx context.Context, c *openaiApp) ([]any, error) {
		p := c.params()
		p.Tools = clockTool()
		return one(c.Chat.Completions.New(ctx, p))
	},
	"completions": func(ctx context.Context, c *openaiApp) ([]any, error) {
		return one(c.Completions.New(ctx, openai.CompletionNewParams{
			Model: openai.CompletionNewParamsModel(c.ask.Model), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(c.ask.Prompt)},
		}))
	},
	"embeddings": func(ctx context.Context, c *openaiApp) ([]any, error) {
		return one(c.Embeddings.New(ctx, openai.EmbeddingNewParams{
			Model: openai.EmbeddingModel(c.ask.Model), Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String(c.ask.Prompt)},
		}))
	},
	"responses": func(ctx context.Context, c *openaiApp) ([]any, error) {
		return one(c.Responses.New(ctx, c.question()))
	},
	"responses stream": func(ctx context.Context, c *openaiApp) ([]any, error) {
		return all(c.Responses.NewStreaming(ctx, c.question()))
	},
}

func asking(at endpoint, a ask) *openaiApp {
	return &openaiApp{ask: a, Client: openai.NewClient(option.WithBaseURL(at.baseURL), option.WithAPIKey(at.key), option.WithMaxRetries(0))}
}

// What a provider answers differs from the description through IOP exactly where
// it does without: IOP adds no deviation and hides none.
func TestSchema_CarriedAnswersDeviateAsTheirProvidersDo(t *testing.T) {
	for _, p := range []struct {
		name, model, served string
		direct              endpoint
		kinds               []string
	}{
		{"llama.cpp", modelLlama, "count", endpoint{baseURL: running.llama.URL() + "/v1", key: "unused"}, []string{
			"chat", "chat stream", "tools", "completions", "embeddings", "responses", "responses stream",
		}},
		{"Ollama", modelBig, engineModel, running.direct(), []string{"chat", "chat stream", "completions", "embeddings"}},
	} {
		for _, kind := range p.kinds {
			t.Run(p.name+"/"+kind, func(t *testing.T) {
				prompt := "go 97"
				if kind == "tools" {
					prompt = "go 990"
				}
				without, err := described[kind](ctx, asking(p.direct, ask{Model: p.served, Prompt: prompt}))
				require.NoError(t, err)
				through, err := described[kind](ctx, asking(running.viaIOP(), ask{Model: p.model, Prompt: prompt}))
				require.NoError(t, err)
				assert.Equal(t, deviations(without...), deviations(through...))
				t.Logf("the provider's own: %s", strings.Join(deviations(without...), "; "))
			})
		}
	}
}

// What IOP answers by itself is as described, but for what its contract adds.
func TestSchema_OwnAnswers(t *testing.T) {
	c := asking(running.viaIOP(), ask{Model: modelBig, Prompt: "go 97"})
	list, err := c.Models.List(ctx)
	require.NoError(t, err)
	require.Len(t, list.Data, len(catalogue()))
	assert.Empty(t, deviations(list))
	one, err := c.Models.Get(ctx, modelBig)
	require.NoError(t, err)
	assert.Empty(t, deviations(one))

	for name, refused := range map[string]*openaiApp{
		"unknown model": asking(running.viaIOP(), ask{Model: "none", Prompt: "go 97"}),
		"wrong key":     asking(endpoint{baseURL: running.viaIOP().baseURL, key: "wrong"}, ask{Model: modelBig, Prompt: "go 97"}),
		"lost provider": asking(running.viaIOP(), ask{Model: modelDropped, Prompt: "go 97"}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := refused.Chat.Completions.New(ctx, refused.params())
			var e *openai.Error
			require.ErrorAs(t, err, &e)
			assert.Empty(t, deviations(e))
		})
	}
}

// The same of Anthropic's API.
func TestSchema_Messages(t *testing.T) {
	decoded := func(at endpoint, model, kind string) ([]any, error) {
		c := &anthropicApp{ask: ask{Model: model, Prompt: "go 97"}, Client: anthropic.NewClient(
			anthropicoption.WithBaseURL(strings.TrimSuffix(at.baseURL, "/v1")), anthropicoption.WithAPIKey(at.key), anthropicoption.WithMaxRetries(0))}
		switch kind {
		case "messages":
			return one(c.Messages.New(ctx, c.params()))
		case "count tokens":
			return one(c.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: anthropic.Model(model), Messages: c.said()}))
		}
		var events []any
		stream := c.Messages.NewStreaming(ctx, c.params())
		for stream.Next() {
			events = append(events, stream.Current())
		}
		return events, stream.Err()
	}
	for _, kind := range []string{"messages", "messages stream", "count tokens"} {
		t.Run(kind, func(t *testing.T) {
			without, err := decoded(endpoint{baseURL: running.llama.URL() + "/v1", key: "unused"}, "count", kind)
			require.NoError(t, err)
			through, err := decoded(running.viaIOP(), modelLlama, kind)
			require.NoError(t, err)
			assert.Equal(t, deviations(without...), deviations(through...))
			t.Logf("the provider's own: %s", strings.Join(deviations(without...), "; "))
		})
	}
	t.Run("error", func(t *testing.T) {
		_, err := decoded(running.viaIOP(), "none", "messages")
		var e *anthropic.Error
		require.True(t, errors.As(err, &e))
		assert.JSONEq(t, `"error"`, e.JSON.ExtraFields["type"].Raw())
		assert.NotEmpty(t, e.JSON.ExtraFields["error"].Raw())
	})
}
