// Package credentials makes, replaces and takes away secrets on a running Edge: API
// keys, join tokens, and the credentials of nodes.
//
// It owns what edge/state keeps of them, and tells edge/auth what of it passes. It
// knows neither the wire nor what a caller may do.
//
//	join token ──Join──► credential ──Next──► next credential ──Used──► the former one ends
//	     └──── expires, used ┘ └────────────── RevokeNode ──────────────┘
//
// A secret is given out only once its hash is on the disk. What is taken away
// ceases to pass first, and is written then: a disk that is full makes a revocation
// not durable, never ineffective.
//
// Two locks: changing is held over a whole change with its write, mu over the
// memory alone. Who takes away, and who notes a use, waits for no disk.
package credentials
