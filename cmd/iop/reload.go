package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
)

// reloadResult is what a refresh did; its JSON is stable.
type reloadResult struct {
	Revision     uint64   `json:"config_revision"`
	Changes      []string `json:"changes"`
	NeedsRestart []string `json:"needs_restart"`
	Warnings     []string `json:"warnings"`
}

// dryRunResult is what a refresh would do; its JSON is stable.
type dryRunResult struct {
	Valid        bool     `json:"valid"`
	Errors       []string `json:"errors"`
	Changes      []string `json:"changes"`
	NeedsRestart []string `json:"needs_restart"`
	Warnings     []string `json:"warnings"`
}

func newConfigReload(stdout, stderr io.Writer) *cobra.Command {
	var dryRun bool
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, _ []string, edge *edgeCaller) (shown, error) {
		if dryRun {
			res, err := edge.admin().CheckConfig(edge.bearer(c.Context()), &adminv1.CheckConfigRequest{})
			return dryRunResult{
				Valid: res.GetValid(), Errors: list(res.GetErrors()), Changes: list(res.GetChanges()),
				NeedsRestart: list(res.GetNeedsRestart()), Warnings: list(res.GetWarnings()),
			}.shown(), err
		}
		res, err := edge.admin().ReloadConfig(edge.bearer(c.Context()), &adminv1.ReloadConfigRequest{})
		return reloadResult{
			Revision: res.GetConfigRevision(), Changes: list(res.GetChanges()),
			NeedsRestart: list(res.GetNeedsRestart()), Warnings: list(res.GetWarnings()),
		}.shown(), err
	}}
	c := e.attach(&cobra.Command{
		Use:   "reload",
		Short: "Ask the running Edge to read its configuration again",
		Long: `Ask the running Edge to read its configuration again, and print what has
changed. A file that it refuses changes nothing: exit code 1, and every error.
What is printed under "needs a restart" is in force after the next start only.
With --dry-run the Edge reads the file, says what would change, and changes
nothing.`,
		Args: noArgs,
	})
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	return c
}

// list is never null in JSON.
func list(lines []string) []string { return append([]string{}, lines...) }

func (r reloadResult) shown() shown {
	return shown{json: r, text: func(int) []string {
		lines := []string{fmt.Sprintf("configuration revision %d", r.Revision)}
		if len(r.Changes) == 0 {
			lines = append(lines, "nothing has changed")
		}
		return append(lines, parts(part{"changed:", r.Changes}, part{"needs a restart:", r.NeedsRestart}, part{"warnings:", r.Warnings})...)
	}}
}

func (r dryRunResult) shown() shown {
	return shown{json: r, fail: !r.Valid, text: func(int) []string {
		var lines []string
		switch {
		case !r.Valid:
			lines = append(lines, "a reload would be refused")
		case len(r.Changes) == 0:
			lines = append(lines, "nothing would change")
		}
		return append(lines, parts(
			part{"errors:", r.Errors}, part{"would change:", r.Changes}, part{"needs a restart:", r.NeedsRestart}, part{"warnings:", r.Warnings})...)
	}}
}

// part is a headed list of what a file says; an empty one is left out.
type part struct {
	head  string
	lines []string
}

func parts(all ...part) (lines []string) {
	for _, p := range all {
		if len(p.lines) > 0 {
			lines = append(lines, p.head)
		}
		for _, line := range p.lines {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}
