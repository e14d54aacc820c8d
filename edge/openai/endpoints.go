package openai

import (
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/openai/splice"
)

// endpoint is one row of the table of what is carried to providers. The list is fixed, so that a client can never choose a path on a node.
type endpoint struct {
	path    string
	surface admission.Surface
	// errors is how the clients of this endpoint read errors.
	errors *dialect
	body   bodyKind
	// stream is how a streamed answer of this endpoint is framed; another media type passes as it is.
	stream splice.Format
	// comments: its streams may be asked for with "stream": true, and take keep-alive comments.
	comments bool
}

// bodyKind is what a request's body is.
type bodyKind uint8

const (
	jsonBody   bodyKind = iota
	formBody            // multipart/form-data
	ollamaJSON          // JSON under whatever media type
)

var endpoints = []endpoint{
	{path: "/v1/chat/completions", surface: admission.SurfaceChat, errors: openAI, stream: splice.SSE, comments: true},
	{path: "/v1/completions", surface: admission.SurfaceCompletions, errors: openAI, stream: splice.SSE, comments: true},
	{path: "/v1/responses", surface: admission.SurfaceResponses, errors: openAI, stream: splice.SSE, comments: true},
	{path: "/v1/embeddings", surface: admission.SurfaceEmbeddings, errors: openAI, stream: splice.SSE},
	{path: "/v1/messages", surface: admission.SurfaceMessages, errors: anthropic, stream: splice.SSE, comments: true},
	{path: "/v1/messages/count_tokens", surface: admission.SurfaceCountTokens, errors: anthropic, stream: splice.SSE},
	{path: "/v1/rerank", surface: admission.SurfaceRerank, errors: openAI, stream: splice.SSE},
	{path: "/v1/audio/speech", surface: admission.SurfaceSpeech, errors: openAI, stream: splice.SSE},
	{path: "/v1/audio/transcriptions", surface: admission.SurfaceTranscription, errors: openAI, body: formBody, stream: splice.SSE},
	{path: "/v1/audio/translations", surface: admission.SurfaceTranslation, errors: openAI, body: formBody, stream: splice.SSE},
	{path: "/v1/images/generations", surface: admission.SurfaceImages, errors: openAI, stream: splice.SSE},
	{path: "/api/chat", surface: admission.SurfaceOllama, errors: ollama, body: ollamaJSON, stream: splice.NDJSON},
	{path: "/api/generate", surface: admission.SurfaceOllama, errors: ollama, body: ollamaJSON, stream: splice.NDJSON},
	{path: "/api/embed", surface: admission.SurfaceOllama, errors: ollama, body: ollamaJSON, stream: splice.NDJSON},
	{path: "/api/embeddings", surface: admission.SurfaceOllama, errors: ollama, body: ollamaJSON, stream: splice.NDJSON},
}

// streamTypes are the media types of streamed answers.
var streamTypes = map[splice.Format]string{splice.SSE: "text/event-stream", splice.NDJSON: "application/x-ndjson"}

func endpointOf(path string) *endpoint {
	for i := range endpoints {
		if endpoints[i].path == path {
			return &endpoints[i]
		}
	}
	return nil
}
