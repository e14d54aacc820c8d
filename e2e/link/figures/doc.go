//go:build !windows

// Command figures measures the Edge–Node link with real processes and prints a
// table: what was measured, and the goal it has. A missed goal is said and is no
// failure, since it may be the machine's; whatever is broken is one.
package main
