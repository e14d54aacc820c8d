// Package dispatch carries one request from admission to its last byte: it
// acquires a lease, hands the request to the node's work stream, relays the
// answer's frames, decides what may be admitted again, and closes the lease.
//
// It owns the order of those steps and the rule that nothing which may have
// reached a provider is ever repeated. It knows neither HTTP nor the wire:
// surfaces hand it a [Request] and a [Sink], and services/nodelink gives it a
// [Link].
package dispatch
