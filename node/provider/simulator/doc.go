// Package simulator is an OpenAI-compatible inference server without a model: it
// answers every prompt with words that depend on nothing but the request, at a
// settable speed, and fails on request. Demos and tests use it, and `iop up` when
// it finds no real server.
//
// It speaks chat completions, completions, embeddings, messages with their token
// count, and responses.
//
// It always says what it is: system_fingerprint is "iop-simulator", ids begin
// with "sim-", answers with "[IOP simulator]".
//
// The package owns the handler and connections in memory to reach it. It must
// not know gates, frames or the wire; its user speaks HTTP to it.
package simulator
