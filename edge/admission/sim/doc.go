// Package sim proves the admission core by living with it: one goroutine, one
// virtual clock and one seeded generator run an Edge around the core, its
// configuration, the links to its nodes, their gates and providers, and clients
// that come, wait, cancel and leave. Everything that can go wrong between them
// goes wrong on purpose.
//
// A run is a series of episodes, each with a site of its own: 1–64 nodes, 1–8
// providers each, 1–16 model groups, most of them small, because small sites
// meet each other's corners sooner. An episode has two phases. In the first,
// faults happen and safety must hold; then they stop, and everything must end
// by itself, nothing may be left, and a wave of new requests must all be served.
//
// The checker (checker.go, observe.go) is a second opinion, not a copy: it knows
// commands, effects and the configuration handed in, keeps the plainest possible
// books of its own (bit sets and a sorted list of waiters, no lines, no heaps),
// and holds every effect of the core against them. It uses only what the core
// exports. Each [Invariant] is checked after every command, with two exceptions:
// on sites of more than snapshotAlways resources the whole snapshot is compared
// after every eighth command, and decision records are compared after every
// eighth, of one waiter.
//
// The package must not know how the core works inside, and it owns no product
// code: nothing but tests and cmd/admission-sim imports it.
//
// # Replay
//
// A violation names seed, episode and step, and carries the last commands and
// effects. `make sim SEED=… STEPS=…` shows it again; `-episode` runs just that
// episode.
package sim
