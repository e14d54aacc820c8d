// Package normalize puts a normalized run (iop.inference.v1.RunRequest) into the
// native terms of one provider type, and the provider's answer into events
// (iop.inference.v1.RunResponse).
//
// It owns two forms: the OpenAI-compatible one (/v1/chat/completions, server-sent
// events) and Ollama's own (/api/chat, a JSON document a line), which alone takes
// num_ctx. Nothing is invented: what a provider does not say is absent, and only
// an answer that the provider has ended as it should is completed.
//
// Memory of one answer: at most LineLimit for a line that is not whole yet, the
// same again while it is read, and ToolLimit for tool calls, which come whole.
// Text is passed on as it comes.
//
// The package must not know connections, gates, frames or time: bytes in, bytes
// out.
package normalize
