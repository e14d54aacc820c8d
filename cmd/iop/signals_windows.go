package main

import "os"

// onHangup never tells: Windows has no SIGHUP.
func onHangup() (hangups <-chan os.Signal, ignore func()) {
	return nil, func() {}
}
