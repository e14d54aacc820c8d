package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/console"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
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
		c.AddCommand(newOverride(o, "NODE/PROVIDER", "gx10/vllm", "a provider", providerNames, stdout, stderr, func(name string) (*adminv1.SetOverrideRequest, error) {
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
		cs = append(cs, newOverride(o, "NODE", "gx10", "a node", nodeNames, stdout, stderr, func(name string) (*adminv1.SetOverrideRequest, error) {
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

func newOverride(o order, argument, example, what string, known names, stdout, stderr io.Writer, request func(name string) (*adminv1.SetOverrideRequest, error)) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, names: known, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		req, err := request(args[0])
		if err != nil {
			return shown{}, err
		}
		res, err := edge.admin().SetOverride(edge.bearer(c.Context()), req)
		if err != nil {
			return shown{}, err
		}
		r := overrideResult{
			Subject: args[0], Mode: res.GetOverride().GetMode(), By: res.GetOverride().GetBy(),
			InFlight: res.GetInFlight(), Durable: res.GetDurable(), Because: res.GetNotDurableBecause(),
		}
		if at := res.GetOverride().GetSince(); at != nil {
			since := at.AsTime()
			r.Since = &since
		}
		return r.shown(), nil
	}}
	return e.attach(&cobra.Command{
		Use:   o.word + " " + argument,
		Short: strings.ToUpper(o.short[:1]) + fmt.Sprintf(o.short[1:], what),
		Args: func(c *cobra.Command, args []string) error {
			if err := oneArg(argument, example)(c, args); err != nil {
				return err
			}
			_, err := request(args[0])
			return err
		},
	})
}

func (r overrideResult) shown() shown {
	state := "as the file says"
	if r.Mode != "" {
		state = fmt.Sprintf("%s since %s by %s", r.Mode, r.Since.Format(time.RFC3339), r.By)
	}
	s := shown{json: r, text: func(width int) []string {
		return console.Wrap(fmt.Sprintf("%s: %s; %d running", r.Subject, state, r.InFlight), width, 0)
	}}
	if !r.Durable {
		s.warn = "this will not survive a restart of the Edge: " + r.Because
	}
	return s
}
