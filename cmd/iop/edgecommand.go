package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/cmd/iop/console"
)

// edgeCommand is a command that calls a running Edge and shows what it says.
type edgeCommand struct {
	role   role
	stdout io.Writer
	stderr io.Writer
	names  names // what the argument is completed to; nil = nothing
	// call makes the call.
	call func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error)
}

// shown is an answer: its JSON is stable, a message's is that of the API.
type shown struct {
	json any
	text func(width int) []string // for stdout, in lines of so many cells
	live func() error             // in place of text, on a terminal; nil = nothing
	warn string                   // a warning, for stderr
	fail bool                     // what the answer says is a failure
}

// attach gives c the flags and the work of an edgeCommand.
func (e *edgeCommand) attach(c *cobra.Command) *cobra.Command {
	var flags edgeFlags
	var output outputFlag
	c.RunE = operation(func(c *cobra.Command, args []string) error {
		edge, err := flags.caller(e.role)
		if err != nil {
			return err
		}
		defer edge.client.CloseIdleConnections()
		s, err := e.call(c, args, edge)
		if err != nil {
			return edge.failed(err)
		}
		if s.warn != "" {
			fmt.Fprintln(e.stderr, "warning: "+s.warn)
		}
		switch {
		case output.isJSON():
			err = writeJSON(e.stdout, s.json)
		case s.live != nil && isTerminal(e.stdout):
			err = s.live()
		default:
			err = writeLines(e.stdout, s.text(widthOf(e.stdout)))
		}
		if err == nil && s.fail {
			return errReported
		}
		return err
	})
	flags.register(c.Flags(), e.role)
	output.register(c.Flags())
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	c.ValidArgsFunction = completion(&flags, e.names)
	return c
}

// writeJSON writes one line.
func writeJSON(w io.Writer, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return json.NewEncoder(w).Encode(v)
	}
	text, err := messageJSON(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// messageJSON is a message as the Connect APIs show it in JSON, fields without a
// value included, and without the spaces that protojson puts in at random.
func messageJSON(m proto.Message) (json.RawMessage, error) {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, text)
	return out.Bytes(), err
}

func writeLines(w io.Writer, lines []string) error {
	var out bytes.Buffer
	for _, l := range lines {
		out.WriteString(l + "\n")
	}
	_, err := w.Write(out.Bytes())
	return err
}

// widthOf is how many cells a line may have: those of the terminal, if w is one.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
			return max(40, width)
		}
	}
	return console.Width
}
