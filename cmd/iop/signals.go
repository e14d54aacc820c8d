package main

import (
	"os"
	"syscall"
	"time"

	"github.com/jonboulle/clockwork"
)

// echoTime is how long after the first signal another one counts as the same:
// process groups and wrappers deliver one Ctrl-C twice.
const echoTime = 500 * time.Millisecond

// stopOn asks for an orderly stop at the first signal, and ends the process at
// the first later one that is no echo, with the code a shell gives for it. It
// returns only if exit does, or signals is closed.
func stopOn(signals <-chan os.Signal, clock clockwork.Clock, stop func(os.Signal), exit func(int)) {
	asked, ok := <-signals
	if !ok {
		return
	}
	first := clock.Now()
	stop(asked)
	for again := range signals {
		if clock.Since(first) < echoTime {
			continue
		}
		code := exitFailed
		if number, ok := again.(syscall.Signal); ok {
			code = 128 + int(number)
		}
		exit(code)
		return
	}
}
