package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/iop-dev/iop/cmd/edged"
)

// onHangup never tells: Windows has no SIGHUP.
func onHangup() (hangups <-chan os.Signal, ignore func()) {
	return nil, func() {}
}

// untilHangup is ctx: the close of a console comes as a signal of its own.
func untilHangup(ctx context.Context) (_ context.Context, release func()) {
	return ctx, func() {}
}

// closeTime is what Windows leaves a process whose console is closed, whose user
// logs off or whose machine shuts down, with a margin: HungAppTimeout is 5 s.
const closeTime = 4 * time.Second

// causeOf is why a signal stops the process. The runtime gives Ctrl-C and
// Ctrl-Break as os.Interrupt, and the three ends that Windows enforces as SIGTERM;
// it holds those up until the process ends or Windows ends it.
func causeOf(s os.Signal) error {
	if s == syscall.SIGTERM {
		return edged.StopWithin(closeTime)
	}
	return nil
}

// errAddressTaken is what listening on a taken port ends with: WSAEADDRINUSE,
// for which the syscall package has no name.
const errAddressTaken = syscall.Errno(10048)
