// Package fleet is what a Control Plane knows of many Edges: the last good
// snapshot of each and its age, sums over those that are live, and the last 24
// hours by the minute.
//
// Each Edge is read by goroutines of its own, with a deadline and a connection of
// its own, so an Edge that hangs delays no other. What is shown is made from the
// snapshots when somebody asks. Nothing at an Edge depends on it: the package only
// reads.
//
// It owns when an Edge is read and what is made of the answers. How an Edge is
// reached is a [Reader]'s business (fleet/edgewire), where points are kept a
// [Store]'s (fleet/history). It knows nothing of an Edge or a node but the
// messages.
package fleet
