package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/node/supervisor"
)

// The exit codes of every command.
const (
	exitDone      = 0
	exitFailed    = 1 // The operation failed.
	exitUsage     = 2 // Wrong usage: unknown flags, missing arguments.
	exitExhausted = 3 // The finite number of reconnect attempts has failed.
	exitRefused   = 4 // A credential or the local configuration is refused.
)

// exitError carries the code of an error. Errors without one come from the
// parser of the command line: they are wrong usage.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// errReported ends a command that has said all there is to say.
var errReported = errors.New("already reported")

// operation wraps what a command does once its line is parsed: its errors are
// failures unless they say otherwise.
func operation(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		err := do(c, args)
		var coded *exitError
		if err == nil || errors.As(err, &coded) {
			return err
		}
		return &exitError{codeOf(err), err}
	}
}

// codeOf classifies the end of a running Edge or Node.
func codeOf(err error) int {
	switch {
	case errors.Is(err, supervisor.ErrExhausted):
		return exitExhausted
	case supervisor.IsFinal(err):
		return exitRefused
	default:
		return exitFailed
	}
}

// usagef is an error of the command line that the parser cannot find.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// report tells the error of a command, if any, and returns its exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	code := exitUsage
	var coded *exitError
	if errors.As(err, &coded) {
		code = coded.code
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintf(stderr, "iop: %v\n", err)
		if code == exitUsage {
			fmt.Fprintln(stderr, `Run "iop --help" or "iop COMMAND --help" for usage.`)
		}
	}
	return code
}
