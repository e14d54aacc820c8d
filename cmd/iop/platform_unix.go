//go:build !windows

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// onHangup gives the requests to re-read the configuration. Several that come
// while one is being served count as one.
func onHangup() (hangups <-chan os.Signal, ignore func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// untilHangup is ctx for what has nothing to read again: it ends in order, too,
// when the terminal is closed in which the process runs. Under nohup it stays.
func untilHangup(ctx context.Context) (_ context.Context, release func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// causeOf is why a signal stops the process: none leaves less time than the
// configuration gives.
func causeOf(os.Signal) error { return nil }

// errAddressTaken is what listening on a taken port ends with.
const errAddressTaken = syscall.EADDRINUSE
