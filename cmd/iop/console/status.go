package console

import (
	"fmt"
	"strings"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Status is an Edge and its nodes: who is there, what is taken, who waits and why.
func Status(s *controlv1.EdgeNodeSnapshot, width int) []string {
	lines := []string{Summary(s, "", width)}
	lines = append(lines, Fit(fmt.Sprintf("iop %s, up %s, configuration revision %d, waits p50 %s",
		orDash(s.GetSoftwareVersion()), Since(s.GetAt(), s.GetStartedAt()), s.GetConfigRevision(), waitOf(s, (*controlv1.WaitStatistics).GetP50Ms)), width))
	for _, a := range Alerts(s) {
		lines = append(lines, hanging("! ", a, width)...)
	}
	lines = append(append(lines, ""), nodes(s, width)...)
	if s.GetQueueTotal() > 0 {
		lines = append(append(lines, ""), waiting(s, width)...)
	}
	return lines
}

func nodes(s *controlv1.EdgeNodeSnapshot, width int) []string {
	if len(s.GetNodes()) == 0 {
		return []string{"no nodes are configured"}
	}
	var rows []row
	for _, n := range s.GetNodes() {
		for i, p := range n.GetProviders() {
			r := row{cells: []string{
				n.GetId() + "/" + p.GetId(), p.GetType(), state(n, p), fmt.Sprintf("%d/%d", p.GetInFlight(), p.GetEffectiveCapacity()), long(p),
				fmt.Sprint(p.GetQueued()),
			}}
			if i == 0 {
				r.notes = append(r.notes, NodeNotes(s, n)...)
			}
			r.notes = append(r.notes, ProviderNotes(s, n, p)...)
			rows = append(rows, r)
		}
		if len(n.GetProviders()) == 0 {
			rows = append(rows, row{[]string{n.GetId(), "-", n.GetState(), "-", "-", "-"}, append(NodeNotes(s, n), "it has no providers")})
		}
	}
	return table([]column{
		{head: "NODE/PROVIDER", least: 13}, {head: "TYPE", least: 4}, {head: "STATE"},
		{head: "SLOTS", right: true}, {head: "LONG", right: true}, {head: "WANTED", right: true},
	}, rows, width)
}

// state is a provider in one word.
func state(n *controlv1.NodeSnapshot, p *controlv1.ProviderSnapshot) string {
	switch {
	case !n.GetConnected():
		return "offline"
	case p.GetExcludedReason() != "":
		return p.GetExcludedReason()
	case n.GetState() == "late":
		return "late"
	case p.GetHealth() == "degraded":
		return p.GetStatus() + ", degraded"
	default:
		return p.GetStatus()
	}
}

func long(p *controlv1.ProviderSnapshot) string {
	if p.GetLongContextCapacity() == 0 && p.GetLongInFlight() == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", p.GetLongInFlight(), p.GetLongContextCapacity())
}

// hanging is a text behind a mark, its further lines below its first word.
func hanging(mark, text string, width int) []string {
	lines := Wrap(text, width, len(mark))
	lines[0] = mark + strings.TrimLeft(lines[0], " ")
	return lines
}
