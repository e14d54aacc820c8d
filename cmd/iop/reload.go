package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
)

// reloadResult is what a refresh did; its JSON is stable.
type reloadResult struct {
	Revision     uint64   `json:"config_revision"`
	Changes      []string `json:"changes"`
	NeedsRestart []string `json:"needs_restart"`
	Warnings     []string `json:"warnings"`
}

func newConfigReload(stdout io.Writer) *cobra.Command {
	var edge edgeFlags
	var output outputFlag
	c := &cobra.Command{
		Use:   "reload",
		Short: "Ask the running Edge to read its configuration again",
		Long: `Ask the running Edge to read its configuration again, and print what has
changed. A file that it refuses changes nothing: exit code 1, and every error.
What is printed under "needs a restart" is in force after the next start only.`,
		Args: noArgs,
		RunE: operation(func(c *cobra.Command, _ []string) error {
			caller, err := edge.caller()
			if err != nil {
				return err
			}
			defer caller.client.CloseIdleConnections()
			res, err := adminv1connect.NewAdminServiceClient(caller.client, caller.url).
				ReloadConfig(caller.bearer(c.Context()), &adminv1.ReloadConfigRequest{})
			if err != nil {
				return caller.failed(err)
			}
			r := reloadResult{
				Revision: res.GetConfigRevision(), Changes: append([]string{}, res.GetChanges()...),
				NeedsRestart: append([]string{}, res.GetNeedsRestart()...), Warnings: append([]string{}, res.GetWarnings()...),
			}
			if output.isJSON() {
				return json.NewEncoder(stdout).Encode(r)
			}
			r.write(stdout)
			return nil
		}),
	}
	edge.register(c.Flags())
	output.register(c.Flags())
	return c
}

func (r reloadResult) write(w io.Writer) {
	fmt.Fprintf(w, "configuration revision %d\n", r.Revision)
	if len(r.Changes) == 0 {
		fmt.Fprintln(w, "nothing has changed")
	}
	for _, part := range []struct {
		head  string
		lines []string
	}{{"changed:", r.Changes}, {"needs a restart:", r.NeedsRestart}, {"warnings:", r.Warnings}} {
		if len(part.lines) > 0 {
			fmt.Fprintln(w, part.head)
		}
		for _, line := range part.lines {
			fmt.Fprintln(w, "  "+line)
		}
	}
}
