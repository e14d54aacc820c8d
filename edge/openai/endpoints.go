package openai

import "github.com/iop-dev/iop/edge/admission"

// endpoint is one row of the table of what is carried to providers. The list is fixed, so that a client can never choose a path on a node.
type endpoint struct {
	path    string
	surface admission.Surface
	// envelope writes an error as the clients of this endpoint read it.
	envelope envelope
}

var endpoints = []endpoint{
	{path: "/v1/chat/completions", surface: admission.SurfaceChat, envelope: openAIEnvelope},
	{path: "/v1/completions", surface: admission.SurfaceCompletions, envelope: openAIEnvelope},
	{path: "/v1/responses", surface: admission.SurfaceResponses, envelope: openAIEnvelope},
	{path: "/v1/embeddings", surface: admission.SurfaceEmbeddings, envelope: openAIEnvelope},
}

func endpointOf(path string) *endpoint {
	for i := range endpoints {
		if endpoints[i].path == path {
			return &endpoints[i]
		}
	}
	return nil
}
