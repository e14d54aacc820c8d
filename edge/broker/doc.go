// Package broker is the shell around the admission core: it serialises the
// core's commands under one mutex, gives it the time, wakes it for deadlines,
// and delivers each decision to the request that waits for it.
//
// It decides nothing. Every rule is edge/admission's; what the broker adds is
// blocking, time and identity:
//
//	Enter ─► Await ─► decision ─► Track ─► Close
//	           ▲         │          │
//	           └─────────┴──────────┘  fenced before hand-off, or refused
//
// Acquire is Enter and the first Await. A decision is written once and read once. Whoever holds a Lease must call
// Close exactly once in the end; a second call is a no-op that the core counts.
// Nothing here knows events, logs or the wire, and no callback runs under the
// mutex.
package broker
