package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/console"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// requestArg is how a request is named on a command line: by its x-request-id or,
// with a leading #, by its number.
func requestArg(c *cobra.Command, args []string) error {
	if err := oneArg("REQUEST_ID or #SEQ", "req_8f3a")(c, args); err != nil {
		return err
	}
	_, _, err := requestName(args[0])
	return err
}

// requestName is a request's number, or else its id.
func requestName(arg string) (seq uint64, id string, err error) {
	number, ok := strings.CutPrefix(arg, "#")
	if !ok {
		if arg == "" || len(arg) > 128 {
			return 0, "", usagef("a request id has 1 to 128 characters; found %d", len(arg))
		}
		return 0, arg, nil
	}
	seq, err = strconv.ParseUint(number, 10, 64)
	if err != nil || seq == 0 {
		return 0, "", usagef("%q: expected a request's number, as in '#17' (in quotes: to a shell, # begins a comment)", arg)
	}
	return seq, "", nil
}

func newExplain(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: reader, stdout: stdout, stderr: stderr, names: explainedNames, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		req := &controlv1.ExplainRequestRequest{}
		switch seq, id, err := requestName(args[0]); {
		case err != nil:
			return shown{}, err
		case seq > 0:
			req.Request = &controlv1.ExplainRequestRequest_EnqueueSeq{EnqueueSeq: seq}
		default:
			req.Request = &controlv1.ExplainRequestRequest_RequestId{RequestId: id}
		}
		x, err := edge.control().ExplainRequest(edge.bearer(c.Context()), req)
		return shown{json: x, text: func(width int) []string { return console.Explain(x, width) }}, err
	}}
	return e.attach(&cobra.Command{
		Use:   "explain REQUEST_ID|#SEQ",
		Short: "Tell what was decided about one request, and why",
		Long: `Tell what was decided about one request, live or among the last that ended: each
evaluation with every candidate, how full it was, and why it was passed over. A
request is named by the x-request-id of its answer (the newest of that id), or by
its number, as in '#17'. With -o json: the ExplainRequestResponse of the control
API.`,
		Args: requestArg,
	})
}

func newRequest(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "request",
		Short: "Cancel a request of a running Edge",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("request needs a subcommand: cancel") },
	}
	c.AddCommand(newRequestCancel(stdout, stderr))
	return c
}

func newRequestCancel(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, names: requestNames, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		req := &adminv1.CancelRequestRequest{}
		switch seq, id, err := requestName(args[0]); {
		case err != nil:
			return shown{}, err
		case seq > 0:
			req.Request = &adminv1.CancelRequestRequest_EnqueueSeq{EnqueueSeq: seq}
		default:
			req.Request = &adminv1.CancelRequestRequest_RequestId{RequestId: id}
		}
		res, err := edge.admin().CancelRequest(edge.bearer(c.Context()), req)
		return cancelled(res), err
	}}
	return e.attach(&cobra.Command{
		Use:   "cancel REQUEST_ID|#SEQ",
		Short: "End a request that waits or runs, as if its client had gone",
		Long: `End a request that waits or runs, as if its client had gone; the client is told.
Its slot comes back once the provider has let go of it. A request is named by its
x-request-id, or by its number, as in '#17'. Where several live ones have the
same id, nothing is cancelled.`,
		Args: requestArg,
	})
}

func cancelled(res *adminv1.CancelRequestResponse) shown {
	return shown{json: res, text: func(width int) []string {
		return []string{console.Fit(fmt.Sprintf("#%d %s: cancelled while %s", res.GetEnqueueSeq(), res.GetRequestId(), res.GetState()), width)}
	}}
}
