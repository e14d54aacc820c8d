// Package refresh shows, with real parts in one process and real HTTP, that a
// configuration changes under load and nobody is dropped, and that an operator's
// overrides last.
package refresh
