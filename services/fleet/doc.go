// Package fleet serves iop.fleet.v1: what a Control Plane knows of its Edges.
// Handlers translate, make one call of the domain, and translate back. Who may
// call is decided before they are reached.
package fleet
