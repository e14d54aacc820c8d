// Package admission is the pure core of an Edge: which request may run on
// which provider resource, and which waits.
//
// It owns provider resources and their counters, leases, the waiting requests,
// queue policy scopes, and connection generations. It knows no clock, lock,
// goroutine, I/O, log, context or randomness: the time is an argument of each
// command, and what follows from a command is its return value, a list of
// [Effect]s in the order in which they happened. The same commands give the
// same effects, byte for byte.
//
// # One request
//
//	          Enqueue
//	             │
//	   ┌─────────┼──────────────┐
//	   ▼         ▼              ▼
//	Rejected   queued ──────► Granted (lease reserved)
//	   ▲         │  ▲           │        │
//	   │         │  └─ fenced or refused │ Track
//	   └─────────┘     (Requeued)        ▼
//	 timeout, unavailable             tracked ──► Release, or Revoked by a fence
//
// A request owns no slot before a lease is reserved for it; a lease ends once,
// and ending it again is a counted no-op (S02).
//
// # Waiting
//
// Waiters stand in one FIFO for each eligibility class: model group, context
// class and endpoint family. All members of a class can run on exactly the same
// resources, so only the heads of classes are ever compared. Each resource
// keeps two heaps of the classes that may run on it, one for normal and one for
// long classes, keyed by the enqueue_seq of the class's head. A head only ever
// moves to a higher seq, so a key that has gone stale is too small and is mended
// when it comes to the top: a grant costs the logarithm of the number of
// classes, and nothing depends on the number of waiters. A request that goes
// back to the queue may no longer try some candidates; it waits in a class of
// its own, so that it blocks nobody.
//
// After every command no waiter has a candidate that could take it.
//
// The caller (edge/broker) serialises all calls. Effects are valid until the
// next command.
package admission
