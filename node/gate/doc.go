// Package gate is the adapter-local capacity of one provider: the last line of
// defence that keeps a physical inference server from holding more executions
// than it can bear, whatever the Edge believes (S05).
//
// A gate counts executions from the moment one is let in until the provider has
// really let go of it, across sessions and reconfigurations: an orphan of a lost
// session keeps its slot until it ends.
//
// Each slot and each claim to one has an [Owner]. It decides nothing about who
// is let in: that is first come, first served. It decides how long a claim waits
// at a full gate. While all slots are held on the claim's own account, whoever
// sent it has sent more than the capacity, and a bounded patience ends in
// [ErrBusy]. While a foreign execution holds one, the sender could not know of
// it, so the claim waits that execution out, and its patience begins afterwards:
//
//	           full, all slots own            patience over
//	arrives ──────────────────────► patient ────────────────► ErrBusy
//	   │                             ▲   │
//	   │ full, a slot foreign        │   │ (a foreign claim ahead is let in)
//	   └─────────────────────► waiting ◄─┘
//
// From both a claim leaves with a slot, with the end of its context, or with
// ErrBusy when its own limit is over.
//
// The package knows nothing of the Edge, leases, generations, HTTP or providers.
// It is no distributed lease and takes part in no admission decision of the Edge.
package gate
