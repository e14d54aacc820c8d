package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/top"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

func newTop(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: reader, stdout: stdout, stderr: stderr}
	e.call = func(c *cobra.Command, _ []string, edge *edgeCaller) (shown, error) {
		s, err := edge.snapshot(c.Context())
		if err != nil {
			return shown{}, err
		}
		return shown{json: s, text: func(width int) []string { return top.Once(s, width) }, live: func() error {
			return runTop(c.Context(), edge, s, stdout)
		}}, nil
	}
	return e.attach(&cobra.Command{
		Use:   "top",
		Short: "Watch a running Edge: who holds each slot, who waits and why",
		Long: `Watch a running Edge, live: who holds each slot, who waits, why, and what will let
them go. Keys: enter explains the selected request, / filters, s sorts, p pauses,
d drains a provider or machine (it asks first, and needs an admin token), ? tells
more, q quits. The picture stays, marked as stale, while the Edge is away.

Where the output is no terminal, and with -o json, it prints the present state
once. Colours only repeat what words say; NO_COLOR leaves them out.`,
		Args: noArgs,
	})
}

// runTop shows the live view until it is left, or ctx ends.
func runTop(ctx context.Context, edge *edgeCaller, state *controlv1.EdgeNodeSnapshot, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	view := top.New(&topEdge{ctx, edge}, clockwork.NewRealClock(), state)
	program := tea.NewProgram(view, tea.WithContext(ctx), tea.WithOutput(stdout), tea.WithoutSignalHandler())
	var following sync.WaitGroup
	following.Go(func() {
		// A watch has no end: only the calls of the view have a limit.
		unlimited := *edge.client
		unlimited.Timeout = 0
		(&top.Follower{
			Client: controlv1connect.NewControlServiceClient(&unlimited, edge.url), Context: edge.bearer, Clock: clockwork.NewRealClock(),
		}).Run(ctx, func(u top.Update) { program.Send(u) })
	})
	_, err := program.Run()
	cancel()
	following.Wait()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// isTerminal reports whether w is one that can be drawn on.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb"
}

// topEdge makes the calls of the view.
type topEdge struct {
	ctx  context.Context //nolint:containedctx // the view's life
	edge *edgeCaller
}

func (t *topEdge) Explain(seq uint64) (*controlv1.ExplainRequestResponse, error) {
	x, err := t.edge.control().ExplainRequest(t.edge.bearer(t.ctx), &controlv1.ExplainRequestRequest{
		Request: &controlv1.ExplainRequestRequest_EnqueueSeq{EnqueueSeq: seq},
	})
	return x, t.edge.failed(err)
}

func (t *topEdge) Drain(node, provider string, reset bool) error {
	edge := *t.edge
	edge.role = administrator
	if token := tokenOf(tokenEnv); token != "" {
		edge.token = token // the view itself may have a read token
	}
	action := adminv1.OverrideAction_OVERRIDE_ACTION_DRAIN
	if reset {
		action = adminv1.OverrideAction_OVERRIDE_ACTION_RESET
	}
	_, err := edge.admin().SetOverride(edge.bearer(t.ctx), &adminv1.SetOverrideRequest{Node: node, Provider: provider, Action: action})
	return edge.failed(err)
}

func (t *topEdge) Describe(err error) error { return t.edge.failed(err) }
