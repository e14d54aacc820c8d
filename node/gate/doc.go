// Package gate is the adapter-local capacity of one provider: the last line of
// defence that keeps a physical inference server from holding more executions
// than it can bear, whatever the Edge believes (S05).
//
// A gate counts executions from the moment one is let in until the provider has
// really let go of it, across sessions and reconfigurations: an orphan of a lost
// session keeps its slot until it ends.
//
// The package knows nothing of the Edge, leases, generations, HTTP or providers.
// It is no distributed lease and takes part in no admission decision of the Edge.
package gate
