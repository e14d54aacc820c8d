// Package state keeps what an operator has said of providers and nodes, over
// refreshes, reconnects and restarts.
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
