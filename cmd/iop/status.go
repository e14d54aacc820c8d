package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/console"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

func newStatus(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: reader, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, _ []string, edge *edgeCaller) (shown, error) {
		s, err := edge.snapshot(c.Context())
		if err != nil {
			return shown{}, err
		}
		return shown{json: s, text: func(width int) []string { return console.Status(s, width) }}, nil
	}}
	return e.attach(&cobra.Command{
		Use:   "status",
		Short: "Show a running Edge: its nodes, what is taken, who waits and why",
		Long: `Show a running Edge: its nodes and providers in the order of the configuration,
what is taken of each, who waits and why. All numbers are of one moment. Under a
provider stands why it takes nothing, or why a free slot of it stays free.
WANTED is how many waiting requests a provider could serve; one request may want
several. With -o json: the EdgeNodeSnapshot of the control API.`,
		Args: noArgs,
	})
}

// requestList is the JSON of "iop requests"; the requests and endings are those of
// the control API.
type requestList struct {
	EdgeID        string            `json:"edgeId"`
	At            time.Time         `json:"at"`
	Revision      uint64            `json:"revision,string"`
	InFlightTotal uint32            `json:"inFlightTotal"`
	QueueTotal    uint32            `json:"queueTotal"`
	Requests      []json.RawMessage `json:"requests"`
	Endings       []json.RawMessage `json:"endings,omitzero"`
}

func newRequests(stdout, stderr io.Writer) *cobra.Command {
	var ended bool
	e := &edgeCommand{role: reader, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, _ []string, edge *edgeCaller) (shown, error) {
		s, err := edge.snapshot(c.Context())
		if err != nil {
			return shown{}, err
		}
		list, err := listOf(s, ended)
		return shown{json: list, text: func(width int) []string {
			lines := console.Requests(s, width)
			if ended {
				lines = append(append(lines, ""), console.Endings(s, width)...)
			}
			return lines
		}}, err
	}}
	c := e.attach(&cobra.Command{
		Use:   "requests",
		Short: "List the requests that run and wait, each waiting one with its reason",
		Long: `List the requests that run and wait. Each one that waits has a reason, the same
in a sentence, and what will let it go. "iop explain" tells more about one. The
256 that are first in the queue are shown; all are counted.`,
		Args: noArgs,
	})
	c.Flags().BoolVar(&ended, "ended", false, "show the last ones that have ended, too")
	return c
}

func listOf(s *controlv1.EdgeNodeSnapshot, ended bool) (*requestList, error) {
	list := &requestList{
		EdgeID: s.GetEdgeId(), At: s.GetAt().AsTime(), Revision: s.GetRevision(),
		InFlightTotal: s.GetInFlightTotal(), QueueTotal: s.GetQueueTotal(), Requests: []json.RawMessage{},
	}
	for _, r := range s.GetRequests() {
		text, err := messageJSON(r)
		if err != nil {
			return nil, err
		}
		list.Requests = append(list.Requests, text)
	}
	if ended {
		list.Endings = []json.RawMessage{}
		for _, e := range s.GetEndings() {
			text, err := messageJSON(e)
			if err != nil {
				return nil, err
			}
			list.Endings = append(list.Endings, text)
		}
	}
	return list, nil
}
