// Package state keeps what an operator has said and made on a running Edge, over
// refreshes, reconnects and restarts: words about providers and nodes, and the
// hashes of secrets.
//
// Both are files in one folder, in one container: written whole, with a checksum
// and a version, and set aside if they cannot be used. What the credentials mean
// is edge/credentials' matter.
//
// It owns the overrides: what one does to the configuration that the core is
// told, when it is over, and the file that it outlasts a restart in. It knows
// neither who may set one nor what admission makes of it.
//
//	set ──► stands ──► reset
//	          │
//	          ├── a refresh changes the provider's `enabled`
//	          └── the provider or node is no longer configured
package state
