package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
)

func newEstimate(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "estimate",
		Short: "The input estimate of the running Edge",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return usagef("estimate needs a command: reset") },
	}
	c.AddCommand(newEstimateReset(stdout, stderr))
	return c
}

func newEstimateReset(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		req := &adminv1.ResetEstimatesRequest{}
		if len(args) == 1 {
			req.Target = args[0]
		}
		res, err := edge.admin().ResetEstimates(edge.bearer(c.Context()), req)
		return forgotten(res.GetForgotten()), err
	}}
	return e.attach(&cobra.Command{
		Use:   "reset [TARGET]",
		Short: "Forget what the estimate has learned from providers' counts",
		Long: `Forget what the estimate has learned from the prompt tokens that providers
counted, for one served target (the provider's own name of a model) or for all:
after a model behind a name was changed, for example. It learns again.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes one TARGET at most; found %d", c.CommandPath(), len(args))
			}
			return nil
		},
	})
}

func forgotten(kinds uint32) shown {
	return shown{json: map[string]uint32{"forgotten": kinds}, text: func(int) []string {
		return []string{fmt.Sprintf("forgotten: %d kinds of text", kinds)}
	}}
}
