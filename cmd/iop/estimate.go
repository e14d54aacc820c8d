package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
)

func newEstimate(stdout io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "estimate",
		Short: "The input estimate of the running Edge",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return usagef("estimate needs a command: reset") },
	}
	c.AddCommand(newEstimateReset(stdout))
	return c
}

func newEstimateReset(stdout io.Writer) *cobra.Command {
	var edge edgeFlags
	var output outputFlag
	c := &cobra.Command{
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
		RunE: operation(func(c *cobra.Command, args []string) error {
			caller, err := edge.caller()
			if err != nil {
				return err
			}
			defer caller.client.CloseIdleConnections()
			req := &adminv1.ResetEstimatesRequest{}
			if len(args) == 1 {
				req.Target = args[0]
			}
			res, err := adminv1connect.NewAdminServiceClient(caller.client, caller.url).ResetEstimates(caller.bearer(c.Context()), req)
			if err != nil {
				return caller.failed(err)
			}
			if output.isJSON() {
				return json.NewEncoder(stdout).Encode(map[string]uint32{"forgotten": res.GetForgotten()})
			}
			_, err = fmt.Fprintf(stdout, "forgotten: %d kinds of text\n", res.GetForgotten())
			return err
		}),
	}
	edge.register(c.Flags())
	output.register(c.Flags())
	return c
}
