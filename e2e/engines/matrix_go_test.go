package engines

// The rows of the Go libraries.
func init() {
	matrix = append(matrix,
		row{
			"openai-go", onOllama,
			[]string{
				"chat", "stream", "length", "completions", "embeddings", "models", "model", "abort", "unknown model", "wrong key",
				"tools refused", "responses refused", "retry 429", "retry 503",
			},
			"a tool call or a JSON answer: the counting model knows numbers only",
		},
		row{
			"openai-go", onLlamacpp,
			[]string{
				"chat", "stream", "length", "tools", "tools stream", "structured", "completions", "responses", "responses stream",
				"embeddings", "abort", "retry 429", "retry 503",
			},
			"",
		},
		row{"openai-go", onFaulty, []string{"no retry 502", "no retry 504"}, ""},
		row{"anthropic-sdk-go", onOllama, []string{"messages refused"}, "messages: Ollama 0.6.5 has none"},
		row{
			"anthropic-sdk-go", onLlamacpp,
			[]string{
				"chat", "stream", "length", "tools", "tools stream", "count tokens", "abort", "unknown model", "wrong key",
				"retry 429", "retry 503",
			},
			"models: `/v1/models` lists them in OpenAI's form only",
		},
		row{"anthropic-sdk-go", onFaulty, []string{"no retry 502", "no retry 504"}, ""},
	)
}
