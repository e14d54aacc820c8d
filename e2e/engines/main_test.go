//go:build engines

package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// wholeRun bounds everything; less than the -timeout that run.sh gives, so that
// the processes are stopped in an orderly way.
const wholeRun = 8 * time.Minute

// running is the stack that all tests share, and ctx its lifetime.
var (
	running *stack
	ctx     context.Context
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// runAll starts the stack, runs the tests against it and stops it, also when a
// signal or the time limit comes first.
func runAll(m *testing.M) int {
	var stop context.CancelFunc
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, stop = context.WithTimeout(ctx, wholeRun)
	defer stop()

	dir, err := os.MkdirTemp("", "iop-engines-")
	if err != nil {
		return report(err)
	}
	bin := binaries{iop: filepath.Join("..", "..", "bin", "iop"), ollama: filepath.Join("..", "..", ".tools", "bin", "ollama")}
	running, err = startStack(ctx, dir, bin)
	if err != nil {
		err = errors.Join(err, running.stop())
		return report(fmt.Errorf("%w\nlogs and configuration are in %s", err, dir))
	}

	code := make(chan int, 1)
	go func() { code <- m.Run() }()
	result := 1
	select {
	case result = <-code:
	case <-ctx.Done():
		result = report(fmt.Errorf("the tests were broken off: %w", context.Cause(ctx)))
	}
	fmt.Println(scenarioReport())
	if err := running.stop(); err != nil {
		result = report(fmt.Errorf("stop: %w", err))
	}
	if result != 0 {
		return max(result, report(fmt.Errorf("logs and configuration are in %s", dir)))
	}
	if err := os.RemoveAll(dir); err != nil {
		return report(err)
	}
	return 0
}

func report(err error) int {
	fmt.Fprintln(os.Stderr, "engines:", err)
	return 1
}
