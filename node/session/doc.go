// Package session is the node's end of the Edge–Node wire: one registration,
// from the dial to the end of everything that ran for it.
//
//	Run: dial ─► Register ─► rejected (typed error)
//	                 │
//	                 ▼ Accepted
//	     apply providers, park work streams, serve requests
//	                 │
//	                 ▼ session lost, Edge silent, or local stop (drain, then end)
//	     cancel what runs, close the streams, wait for the requests to let go
//
// It owns the session stream with its heartbeats, and the work streams: how many
// are parked, and on each the loop that takes a request whole, runs it and sends
// its answer. A cancel may overtake its request, so each stream remembers the
// highest cancelled number.
//
// The package must not know how often to dial again (node/supervisor), how a
// provider is spoken to (node/provider), nor anything of the Edge but its wire.
package session
