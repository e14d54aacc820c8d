// Package provider executes requests against the inference servers of one
// machine. It owns the node's provider instances, their gates and their HTTP
// connections, and turns one request of the wire into one upstream request and
// the frames of its answer.
//
// What it promises:
//
//   - No request reaches a provider without a slot of the provider's gate, and
//     the slot comes back only when the provider has let go of the request:
//     its answer is complete, its connection has ended, or the bounded grace
//     after a cancel is over (S05, B01, B09, B11).
//   - Nothing that may have reached a provider is ever sent again. Failures say
//     with certainty whether an upstream request was opened.
//   - The path is one of a fixed list and the server is the configured one: a
//     client chooses neither. Redirects are not followed, proxies of the
//     environment not used, credentials come from the node alone.
//   - Bodies pass byte for byte in both directions. A short answer never passes
//     for a whole one.
//
// The life of an exchange:
//
//	gate ──► dial ──► sent ──► head ──► body ──► ended
//	  │        │        └────────┴────────┴──► stopping ──► ended
//	  └────────┴──► refused (no upstream request)
//
// stopping is where a cancel, a lost session or an expired limit leads: the
// connection is half-closed and read to its end, for at most the grace.
//
// The package must not know the Edge, sessions, streams or generations; its
// caller hands it a request and a Writer.
package provider
