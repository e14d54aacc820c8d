// Package wake notices what makes a network connection worth less than it looks:
// the machine slept, the process stood still, or the machine's addresses changed.
//
//	tick ──► more time has passed than the tick, by either clock ──► slept
//	     └─► other addresses than at the tick before ──────────────► network changed
//
// A suspended machine sends and receives nothing, its peers give it up, and its
// own timers do not know: the monotonic clock of Linux and macOS stops in suspend
// while the wall clock goes on, so their difference leaps. A process that was stopped
// (SIGSTOP, a paused virtual machine) finds that a tick came much too late. A wall
// clock that is set forward looks like sleep; so what is done at an event must be
// harmless when nothing is wrong, such as asking for a sign of life.
//
// The package must not know what is done about it (cmd/noded).
package wake
