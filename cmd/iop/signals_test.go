package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCLI_TheSecondCtrlCEndsTheProcessUnlessItIsAnEcho(t *testing.T) {
	clock := clockwork.NewFakeClock()
	signals := make(chan os.Signal) // Unbuffered: a send has been taken.
	stopped, code := make(chan struct{}), make(chan int, 1)
	go stopOn(signals, clock, func(s os.Signal) {
		assert.Equal(t, os.Interrupt, s)
		close(stopped)
	}, func(c int) { code <- c })
	signals <- os.Interrupt
	<-stopped
	signals <- os.Interrupt
	signals <- syscall.SIGTERM
	require.Empty(t, code)
	clock.Advance(echoTime)
	signals <- syscall.SIGTERM
	require.Equal(t, 128+int(syscall.SIGTERM), <-code)
}

func TestCLI_NoSignalStopsNothing(t *testing.T) {
	signals := make(chan os.Signal)
	close(signals)
	stopOn(signals, clockwork.NewFakeClock(), func(os.Signal) { t.Error("stopped") }, func(int) { t.Error("exited") })
}
