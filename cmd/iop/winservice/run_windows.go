package winservice

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/jonboulle/clockwork"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
)

// eventID is the id of every event; the text says the rest.
const eventID = 1

// Run runs the program as a service if the service manager has started this
// process, and returns its exit code. run gets the log in place of stderr.
func Run(run func(ctx context.Context, stderr io.Writer) int) (code int, isService bool) {
	is, err := svc.IsWindowsService()
	if err != nil || !is {
		return 0, false
	}
	p := &program{run: run}
	// A service of its own process: the name that it was registered by comes with
	// the start.
	if err := svc.Run("", p); err != nil {
		fmt.Fprintln(os.Stderr, "iop: service:", err)
		return 1, true
	}
	return p.code, true
}

// program implements svc.Handler.
type program struct {
	run  func(ctx context.Context, stderr io.Writer) int
	code int
}

// Execute runs the program once. The exit code goes to the manager as the
// service's own.
func (p *program) Execute(args []string, requests <-chan svc.ChangeRequest, statuses chan<- svc.Status) (own bool, code uint32) {
	name := "iop"
	if len(args) > 0 && args[0] != "" {
		name = args[0]
	}
	stderr := io.Discard
	if events, err := eventlog.Open(name); err == nil {
		defer events.Close()
		stderr = logWriter{func(s severity, text string) error {
			switch s {
			case information:
				return events.Info(eventID, text)
			case warning:
				return events.Warning(eventID, text)
			default:
				return events.Error(eventID, text)
			}
		}}
	}

	controls, ended := make(chan Control), make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case r := <-requests:
				select {
				case controls <- controlOf(r.Cmd):
				case <-ended:
					return
				}
			case <-ended:
				return
			}
		}
	}()
	tell := func(s Status) {
		status := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
		if s.Stopping {
			status = svc.Status{State: svc.StopPending, CheckPoint: s.Checkpoint, WaitHint: uint32(Hint.Milliseconds())}
		}
		statuses <- status
	}
	p.code = serve(controls, tell, clockwork.NewRealClock(), func(ctx context.Context) int { return p.run(ctx, stderr) })
	return p.code != 0, uint32(p.code)
}

func controlOf(c svc.Cmd) Control {
	switch c {
	case svc.Stop:
		return Stop
	case svc.Shutdown:
		return Shutdown
	default:
		return Interrogate
	}
}
