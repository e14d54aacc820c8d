// Package splice rewrites the model name in a provider's answer while it streams through, and leaves every other byte as it came.
//
// It owns two automata: one over the lines of a stream (server-sent events, or an object a line) and one over the JSON objects inside its
// data (or over a whole JSON body). Both are incremental: a chunk may end at any byte, nothing is decoded or serialised again, and nothing is held back
// but the model value itself, at most MaxModelBytes of it. An event of any length therefore passes in constant memory.
//
// While the bytes pass it notes what the relay needs to judge the ending: whether a finish_reason, an end marker or an error was seen,
// whether the stream stands in the middle of an event, and the usage numbers.
//
// It must not know HTTP, leases or errors: whether to splice at all (2xx, not content-encoded) is the caller's decision.
package splice
