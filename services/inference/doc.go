// Package inference serves iop.inference.v1: the typed API for clients that hold
// an API key.
//
// A run goes through the same dispatcher as the OpenAI-compatible surface, so the
// same lease, class, queue and gate; the node puts it into its provider's terms
// and its answer into events, which are passed on as they come.
//
// The package translates. What a model is, and whether it can be served, is told
// to it; codes of errors are services/rpcerr's.
package inference
