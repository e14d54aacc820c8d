package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// totals are the sums of a snapshot's slots.
type totals struct {
	slots, busy         uint32 // of providers that take work
	ending              uint32 // leases of those that take none
	longSlots, longBusy uint32
}

func totalsOf(s *controlv1.EdgeNodeSnapshot) (t totals) {
	for _, n := range s.GetNodes() {
		for _, p := range n.GetProviders() {
			if p.GetStatus() == "unavailable" {
				continue
			}
			t.slots += p.GetEffectiveCapacity()
			t.busy += p.GetInFlight()
			if p.GetLongContextCapacity() > 0 {
				t.longSlots += p.GetLongContextCapacity()
				t.longBusy += p.GetLongInFlight()
			}
		}
	}
	t.ending = s.GetInFlightTotal() - min(t.busy, s.GetInFlightTotal())
	return t
}

// Summary is an Edge in one line of so many cells: who it is, state of the
// connection where that is of interest, slots, who waits.
func Summary(s *controlv1.EdgeNodeSnapshot, connection string, width int) string {
	t := totalsOf(s)
	var parts []string
	if connection != "" {
		parts = append(parts, connection)
	}
	slots := fmt.Sprintf("slots %d/%d", t.busy, t.slots)
	if t.ending > 0 {
		slots += fmt.Sprintf(" +%d ending", t.ending)
	}
	parts = append(parts, slots)
	if t.longSlots > 0 {
		parts = append(parts, fmt.Sprintf("long %d/%d", t.longBusy, t.longSlots))
	}
	wait := fmt.Sprintf("wait %d", s.GetQueueTotal())
	if s.GetQueueTotal() > 0 {
		wait += " (oldest " + Age(time.Duration(s.GetOldestWaitMs())*time.Millisecond) + ")" //nolint:gosec // a wait
	}
	parts = append(parts, wait, "p95 "+waitOf(s, (*controlv1.WaitStatistics).GetP95Ms))
	rest := "  " + strings.Join(parts, "  ")
	id := Fit(s.GetEdgeId(), max(6, width-ansi.StringWidth(rest)))
	return Fit(id+rest, width)
}

// waitOf is a figure of the waits of the last 15 minutes: measured, or unknown (U11).
func waitOf(s *controlv1.EdgeNodeSnapshot, figure func(*controlv1.WaitStatistics) uint64) string {
	if s.GetWaits() == nil {
		return "unknown"
	}
	return Span(figure(s.GetWaits()))
}

// NodeNotes is what is to be said of a node beside its slots: that it is late or
// away, since when, and what an operator has ordered.
func NodeNotes(s *controlv1.EdgeNodeSnapshot, n *controlv1.NodeSnapshot) (notes []string) {
	var slots uint32
	for _, p := range n.GetProviders() {
		slots += p.GetConfiguredCapacity()
	}
	switch n.GetState() {
	case "late":
		notes = append(notes, "LATE: last seen "+Since(s.GetAt(), n.GetLastSeen())+" ago")
	case "offline":
		notes = append(notes, fmt.Sprintf("OFFLINE for %s, last seen %s ago; %s out",
			Since(s.GetAt(), n.GetOfflineSince()), Since(s.GetAt(), n.GetLastSeen()), plural(slots, "slot")))
	case "never":
		notes = append(notes, fmt.Sprintf("OFFLINE, not seen since the Edge started; %s out", plural(slots, "slot")))
	}
	switch o := n.GetOverride(); {
	case o != nil:
		notes = append(notes, overrideNote(s, o))
	case n.GetDraining():
		notes = append(notes, "DRAINING: it takes no new work")
	}
	if n.GetNotice() != "" {
		notes = append(notes, n.GetNotice())
	}
	return notes
}

// ProviderNotes is why a provider takes nothing, or why a free slot of it stays
// free (U8).
func ProviderNotes(s *controlv1.EdgeNodeSnapshot, n *controlv1.NodeSnapshot, p *controlv1.ProviderSnapshot) (notes []string) {
	if o := p.GetOverride(); o != nil {
		notes = append(notes, overrideNote(s, o))
	}
	// Of a node that is away, or taken out, its own line tells, and an override of itself.
	told := !n.GetConnected() || n.GetDraining() && p.GetExcludedReason() == "draining" || p.GetOverride().GetMode() == p.GetExcludedReason()
	if p.GetExcludedSentence() != "" && !told {
		notes = append(notes, p.GetExcludedReason()+": "+p.GetExcludedSentence())
	}
	if p.GetIdleBecause() != "" {
		notes = append(notes, "free: "+p.GetIdleBecause())
	}
	return notes
}

func overrideNote(s *controlv1.EdgeNodeSnapshot, o *controlv1.Override) string {
	return fmt.Sprintf("%s for %s, by %s", strings.ToUpper(o.GetMode()), Since(s.GetAt(), o.GetSince()), o.GetBy())
}

// Alerts are what an operator should know of the Edge itself.
func Alerts(s *controlv1.EdgeNodeSnapshot) (alerts []string) {
	if e := s.GetLastRefreshError(); e != "" {
		alerts = append(alerts, "the last reading of the configuration was refused, revision "+
			fmt.Sprint(s.GetConfigRevision())+" stays in force: "+e)
	}
	if n := s.GetNeedsRestart(); len(n) > 0 {
		alerts = append(alerts, "in force after a restart only: "+strings.Join(n, "; "))
	}
	if o := s.GetOverridesNotDurable(); o != "" {
		alerts = append(alerts, "overrides will not survive a restart: "+o)
	}
	if p := s.GetCredentialsProblem(); p != "" {
		alerts = append(alerts, "kept credentials: "+p)
	}
	return alerts
}
