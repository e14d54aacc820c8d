//go:build !windows

// Command figures puts real Edge and Node processes under load and prints a
// table: what was measured, and the goal it has. A missed time is said and is no
// failure, since it may be the machine's; an error, a short answer, a lease that
// is not back or something left behind is one.
package main
