package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/iop-dev/iop/cmd/iop/console"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
)

func newNodeToken(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "What nodes come with: make join tokens, list and revoke",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("node token needs a subcommand: create, list or revoke")
		},
	}
	c.AddCommand(newNodeTokenCreate(stdout, stderr), newNodeTokenList(stdout, stderr), newNodeTokenRevoke(stdout, stderr))
	return c
}

func newNodeTokenCreate(stdout, stderr io.Writer) *cobra.Command {
	var life time.Duration
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, names: nodeNames, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		req := &adminv1.CreateJoinTokenRequest{Node: args[0]}
		if life != 0 {
			req.Life = durationpb.New(life)
		}
		res, err := edge.admin().CreateJoinToken(edge.bearer(c.Context()), req)
		return joinTokenMade(res), err
	}}
	c := e.attach(&cobra.Command{
		Use:   "create NODE",
		Short: "Make a token by which a node joins, once, and print it",
		Long: `Make a join token for a node that edge.yaml names without a token, and print it:
it is shown this once. The node exchanges it for a credential of its own; then
the join token serves no more.`,
		Args: oneArg("NODE", "gx10"),
	})
	c.Flags().DurationVar(&life, "life", 0, "`TIME` that the token serves, such as 1h (default and most 24h)")
	return c
}

func joinTokenMade(res *adminv1.CreateJoinTokenResponse) shown {
	return shown{json: res, text: func(width int) []string {
		return append([]string{res.GetSecret()}, console.Wrap(fmt.Sprintf("The join token for %s is shown this once. It serves once, until %s.",
			res.GetToken().GetNode(), console.At(res.GetToken().GetExpires())), width, 0)...)
	}}
}

func newNodeTokenList(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, _ []string, edge *edgeCaller) (shown, error) {
		res, err := edge.admin().ListNodeCredentials(edge.bearer(c.Context()), &adminv1.ListNodeCredentialsRequest{})
		return listedNodes(res), err
	}}
	return e.attach(&cobra.Command{Use: "list", Short: "List the credentials of nodes and the join tokens that serve", Args: noArgs})
}

func listedNodes(res *adminv1.ListNodeCredentialsResponse) shown {
	return shown{json: res, text: func(width int) []string { return console.NodeCredentials(res, width) }}
}

func newNodeTokenRevoke(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, names: nodeNames, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		res, err := edge.admin().RevokeNode(edge.bearer(c.Context()), &adminv1.RevokeNodeRequest{Node: args[0]})
		return nodeRevoked(args[0], res), err
	}}
	return e.attach(&cobra.Command{
		Use:   "revoke NODE",
		Short: "Take a node's credential and join tokens away, at once",
		Long: `Take a node's credential and join tokens away, at once: its session ends, and its
running requests as when a node is lost. A token that edge.yaml holds is taken out
of the file instead.`,
		Args: oneArg("NODE", "gx10"),
	})
}

func nodeRevoked(node string, res *adminv1.RevokeNodeResponse) shown {
	return shown{json: res, warn: notDurable(res.GetDurable(), res.GetNotDurableBecause()), text: func(width int) []string {
		had, session := "no credential", ""
		if res.GetCredential() {
			had = "its credential"
		}
		if res.GetWasConnected() {
			session = "; its session has ended"
		}
		return console.Wrap(fmt.Sprintf("%s: revoked %s, join tokens: %d%s", node, had, res.GetJoinTokens(), session), width, 0)
	}}
}
