package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/winservice"
)

// version and commit are set by the linker; see the Makefile.
var (
	version string
	commit  string
)

func main() {
	code, isService := winservice.Run(func(ctx context.Context, stderr io.Writer) int {
		return execute(ctx, os.Args[1:], io.Discard, stderr)
	})
	if isService {
		os.Exit(code)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	go stopOn(signals, clockwork.NewRealClock(), func(s os.Signal) { cancel(causeOf(s)) }, os.Exit)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code. ctx is cancelled by
// the signals that ask for an orderly end.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return report(stderr, root.ExecuteContext(ctx))
}

// newRoot builds the command tree. What a command reads of the process, other
// than files, comes through the streams and the context.
func newRoot(stdout, stderr io.Writer) *cobra.Command {
	var logs logFlags
	root := &cobra.Command{
		Use:   "iop",
		Short: "One OpenAI-compatible endpoint for all your inference machines",
		Long: `IOP turns your inference machines into one OpenAI-compatible endpoint that
never runs more requests on a machine than it can hold.

Start with "iop up": an Edge and a Node on this machine, with what serves here.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	logs.register(root.PersistentFlags())
	root.AddCommand(
		newUp(&logs, stdout, stderr),
		newEdge(&logs, stderr),
		newNode(&logs, stdout, stderr),
		newControlPlane(&logs, stderr),
		newProvider(stdout, stderr),
		newKey(stdout, stderr),
		newStatus(stdout, stderr),
		newTop(stdout, stderr),
		newRequests(stdout, stderr),
		newExplain(stdout, stderr),
		newRequest(stdout, stderr),
		newEstimate(stdout, stderr),
		newConfig(stdout, stderr),
		newVersion(stdout),
	)
	return root
}
