// Package config turns edge.yaml into an immutable [Snapshot].
//
// It owns the meaning of the file: defaults, the rules that look at more than
// one place (unique names, references, context arithmetic, who may listen where),
// the promotion of legacy queue values, the effective queue policy of every
// route, and what of a change needs a restart. Loading is the one phase of a
// reload that can fail; a snapshot that exists can be applied.
//
//	file ──configs──► message ──rules──► defaults ──► Snapshot ──► admission, auth, …
//
// Rules see what the file says; everything behind them sees a message in which
// every default is filled in. The package opens no port, and no other file than
// the secrets that this one points to and, in CheckFiles, its certificate. It
// knows nothing of what runs: leases, waiters and connections are the broker's.
package config
