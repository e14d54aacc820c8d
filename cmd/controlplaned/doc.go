// Package controlplaned puts a Control Plane together and runs it: a reader for
// each configured Edge, the fleet, its history, and the fleet API and the
// dashboard on one listener.
//
// It owns what belongs to the process: the listener, who may call which route, and
// the order of a stop. It changes nothing at an Edge, and holds read tokens alone.
package controlplaned
