package winservice

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/cmd/edged"
)

// Control is what the service manager asks for.
type Control int

// The controls that a service takes.
const (
	Interrogate Control = iota // say again how it is
	Stop
	Shutdown // Windows shuts down
)

// Status is what the manager is told. A service that stops has to show progress
// by a growing Checkpoint within each hint.
type Status struct {
	Stopping   bool
	Checkpoint uint32
}

const (
	// ShutdownLimit is what Windows leaves a service when it shuts down, with a
	// margin: WaitToKillServiceTimeout is 5 s.
	ShutdownLimit = 4 * time.Second
	// progressEvery is how often a stopping service shows progress, and Hint what
	// it promises.
	progressEvery = time.Second
	Hint          = 10 * time.Second
)

// serve runs the program until it ends, and returns its exit code. tell is called
// from this goroutine.
func serve(controls <-chan Control, tell func(Status), clock clockwork.Clock, run func(context.Context) int) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	ended := make(chan int, 1)
	go func() { ended <- run(ctx) }()

	var status Status
	var progress <-chan time.Time
	tell(status)
	for {
		select {
		case c := <-controls:
			switch c {
			case Stop:
				stop(nil)
			case Shutdown:
				stop(edged.StopWithin(ShutdownLimit))
			}
			if c != Interrogate && !status.Stopping {
				status.Stopping = true
				ticker := clock.NewTicker(progressEvery)
				defer ticker.Stop()
				progress = ticker.Chan()
			}
			tell(status)
		case <-progress:
			status.Checkpoint++
			tell(status)
		case code := <-ended:
			return code
		}
	}
}
