// Command figures measures a Control Plane: the real process reads 50 simulated
// Edges of 20 nodes each, five of which hang and five of which come and go, and
// tells how long pulls take, how old what it shows is, and what it costs.
//
// It fails if an Edge that is well is ever shown older than two intervals.
package main
