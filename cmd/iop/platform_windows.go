package main

import (
	"os"
	"syscall"
)

// onHangup never tells: Windows has no SIGHUP.
func onHangup() (hangups <-chan os.Signal, ignore func()) {
	return nil, func() {}
}

// errAddressTaken is what listening on a taken port ends with: WSAEADDRINUSE,
// for which the syscall package has no name.
const errAddressTaken = syscall.Errno(10048)
