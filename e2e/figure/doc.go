// Package figure prints what a program has measured as a table, each figure with
// the goal it has. A missed goal is said and is no failure, since it may be the
// machine's; whatever is broken is one. It knows nothing of what is measured.
package figure
