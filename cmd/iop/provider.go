package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
)

// order is one of the words that an operator can say.
type order struct {
	word   string
	action adminv1.OverrideAction
	short  string
}

var orders = []order{
	{"enable", adminv1.OverrideAction_OVERRIDE_ACTION_ENABLE, "let %s take work, whatever the file says"},
	{"disable", adminv1.OverrideAction_OVERRIDE_ACTION_DISABLE, "give %s nothing new; what runs goes on"},
	{"drain", adminv1.OverrideAction_OVERRIDE_ACTION_DRAIN, "give %s nothing new, so that it becomes idle"},
	{"reset", adminv1.OverrideAction_OVERRIDE_ACTION_RESET, "let the file decide about %s again"},
}

func newProvider(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "provider",
		Short: "Enable, disable or drain a provider of a running Edge",
		Long: `Enable, disable or drain a provider of a running Edge, above what its file says,
until "reset" or until the file changes its enabled. What runs goes on; requests
that wait are looked at again at once.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("provider needs a subcommand: enable, disable, drain or reset")
		},
	}
	for _, o := range orders {
		c.AddCommand(newOverride(o, "NODE/PROVIDER", "gx10/vllm", "a provider", stdout, stderr, func(name string) (*adminv1.SetOverrideRequest, error) {
			node, provider, ok := strings.Cut(name, "/")
			if !ok || node == "" || provider == "" {
				return nil, usagef("%q: expected NODE/PROVIDER, as in gx10/vllm", name)
			}
			return &adminv1.SetOverrideRequest{Node: node, Provider: provider, Action: o.action}, nil
		}))
	}
	return c
}

// newNodeOverrides are the same words about a whole node. Enabling one would be
// the same as its reset.
func newNodeOverrides(stdout, stderr io.Writer) []*cobra.Command {
	var cs []*cobra.Command
	for _, o := range orders[1:] {
		cs = append(cs, newOverride(o, "NODE", "gx10", "a node", stdout, stderr, func(name string) (*adminv1.SetOverrideRequest, error) {
			if name == "" || strings.Contains(name, "/") {
				return nil, usagef("%q: expected NODE, as in gx10; one provider is the matter of \"iop provider %s\"", name, o.word)
			}
			return &adminv1.SetOverrideRequest{Node: name, Action: o.action}, nil
		}))
	}
	return cs
}

// overrideResult is what is in force after an order; its JSON is stable.
type overrideResult struct {
	Subject string     `json:"subject"`
	Mode    string     `json:"mode"` // empty = what the file says
	Since   *time.Time `json:"since,omitempty"`
	By      string     `json:"by,omitempty"`
	// InFlight is what runs there now.
	InFlight uint32 `json:"in_flight"`
	Durable  bool   `json:"durable"`
	// Because is why it does not outlast a restart of the Edge.
	Because string `json:"not_durable_because,omitempty"`
}

func newOverride(o order, argument, example, what string, stdout, stderr io.Writer, request func(name string) (*adminv1.SetOverrideRequest, error)) *cobra.Command {
	var edge edgeFlags
	var output outputFlag
	c := &cobra.Command{
		Use:   o.word + " " + argument,
		Short: strings.ToUpper(o.short[:1]) + fmt.Sprintf(o.short[1:], what),
		Args:  oneArg(argument, example),
		RunE: operation(func(c *cobra.Command, args []string) error {
			req, err := request(args[0])
			if err != nil {
				return err
			}
			caller, err := edge.caller()
			if err != nil {
				return err
			}
			defer caller.client.CloseIdleConnections()
			res, err := adminv1connect.NewAdminServiceClient(caller.client, caller.url).SetOverride(caller.bearer(c.Context()), req)
			if err != nil {
				return caller.failed(err)
			}
			r := overrideResult{
				Subject: args[0], Mode: res.GetOverride().GetMode(), By: res.GetOverride().GetBy(),
				InFlight: res.GetInFlight(), Durable: res.GetDurable(), Because: res.GetNotDurableBecause(),
			}
			if at := res.GetOverride().GetSince(); at != nil {
				since := at.AsTime()
				r.Since = &since
			}
			if output.isJSON() {
				return json.NewEncoder(stdout).Encode(r)
			}
			r.write(stdout, stderr)
			return nil
		}),
	}
	edge.register(c.Flags())
	output.register(c.Flags())
	return c
}

func (r overrideResult) write(stdout, stderr io.Writer) {
	state := "as the file says"
	if r.Mode != "" {
		state = fmt.Sprintf("%s since %s by %s", r.Mode, r.Since.Format(time.RFC3339), r.By)
	}
	fmt.Fprintf(stdout, "%s: %s; %d running\n", r.Subject, state, r.InFlight)
	if !r.Durable {
		fmt.Fprintf(stderr, "warning: this will not survive a restart of the Edge: %s\n", r.Because)
	}
}
