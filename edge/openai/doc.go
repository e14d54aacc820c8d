// Package openai is the HTTP surface that OpenAI clients speak to: routes, keys, the bounded body, the model's name in and out, the relay
// of the answer, and the error table of the contract.
//
// It owns everything a client can see over HTTP and the only place where a dispatch result gets a status and a code. A body is never
// decoded or serialised again: bodyscan finds the model's value, estimate prices the bytes, dispatch replaces the value, splice puts the
// id that the client asked for back into the answer.
//
// It must not know the wire to the nodes, leases, queues or configuration files: requests go to a [Dispatcher], settings come as one
// immutable [Settings] that a refresh swaps.
//
// Decisions where the contract leaves room: a POST without Content-Type is taken as JSON unless a browser sent it (Origin), since a page
// could otherwise post across origins without a preflight; a streamed answer that ends neatly but showed no finish_reason, end marker or
// error is a lost provider (A10), and so is an event stream without a single byte.
//
// Clients of Ollama's own API are served beside, in the files named after it: carried to providers of that type only, and told of the
// catalogue no more than IOP knows.
package openai
