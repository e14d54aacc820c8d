// Package fleetconfig reads controlplane.yaml: which Edges a Control Plane reads,
// how often, and who may read of it.
//
// It owns the defaults and the rules that look at more than one value. It knows
// nothing of how an Edge is read.
package fleetconfig
