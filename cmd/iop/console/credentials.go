package console

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
)

// At is a moment to the minute, in UTC; "-" without one.
func At(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04Z")
}

// Keys are the API keys of an Edge.
func Keys(r *adminv1.ListKeysResponse, width int) []string {
	var lines []string
	if !r.GetAskedFor() {
		lines = Wrap("No API key is asked for: edge.auth.mode is none.", width, 0)
	}
	if len(r.GetKeys()) == 0 {
		return append(lines, "there is no API key")
	}
	var rows []row
	for _, k := range r.GetKeys() {
		limit, models := "-", "all"
		if n := k.GetMaxConcurrent(); n > 0 {
			limit = fmt.Sprint(n)
		}
		if m := k.GetModels(); len(m) > 0 {
			models = strings.Join(m, ", ")
		}
		l := row{cells: []string{k.GetName(), k.GetSource(), At(k.GetCreated()), orDash(k.GetBy()), fmt.Sprint(k.GetRunning()), limit, models}}
		if why := k.GetRefusedBecause(); why != "" {
			l.notes = []string{"does not pass: " + why}
		}
		rows = append(rows, l)
	}
	return append(lines, table([]column{
		{head: "KEY", least: 8}, {head: "FROM"}, {head: "CREATED"}, {head: "BY", least: 5}, {head: "RUN", right: true}, {head: "MOST", right: true}, {head: "MODELS", least: 8},
	}, rows, width)...)
}

// NodeCredentials are what the nodes of an Edge come with.
func NodeCredentials(r *adminv1.ListNodeCredentialsResponse, width int) []string {
	var rows []row
	for _, n := range r.GetNodes() {
		from, connected := n.GetSource(), "no"
		if from == "" {
			from = "not joined"
		}
		if n.GetConnected() {
			connected = "yes"
		}
		l := row{cells: []string{n.GetNode(), from, At(n.GetSince()), At(n.GetLastUsed()), connected}}
		if why := n.GetRefusedBecause(); why != "" {
			l.notes = append(l.notes, "does not pass: "+why)
		}
		if n.GetFormerPasses() {
			l.notes = append(l.notes, "its former credential passes until this one is used")
		}
		rows = append(rows, l)
	}
	lines := []string{"there is no node"}
	if len(rows) > 0 {
		lines = table([]column{{head: "NODE", least: 8}, {head: "FROM"}, {head: "SINCE"}, {head: "LAST USED"}, {head: "CONNECTED"}}, rows, width)
	}
	if len(r.GetJoinTokens()) == 0 {
		return lines
	}
	rows = nil
	for _, j := range r.GetJoinTokens() {
		rows = append(rows, row{cells: []string{j.GetId(), j.GetNode(), At(j.GetExpires()), orDash(j.GetBy())}})
	}
	return append(append(lines, ""), table([]column{{head: "JOIN TOKEN"}, {head: "NODE", least: 8}, {head: "EXPIRES"}, {head: "BY", least: 5}}, rows, width)...)
}
