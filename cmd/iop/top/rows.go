package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/iop-dev/iop/cmd/iop/console"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// row is one line of the view.
type row struct {
	key   string // stays while the line is about the same thing
	label string // the first column: a name, cut where it is too long, and the slot
	slot  string // "/1-3"
	// What the other columns say, or, where text is set, a sentence in their place.
	model, who, state, age, rate string
	text                         string

	request        *controlv1.RequestSnapshot // nil = about none
	node, provider string                     // what it is about; empty in NEXT
	alarm          bool
}

// slots keeps who is shown in which slot, so that nobody moves while others come
// and go. Slots have no numbers at the Edge: they are those of this view.
type slots map[uint64]int

// place gives the leases of one provider their slots; numbers begin with 1.
func (s slots) place(leases []*controlv1.RequestSnapshot) map[int]*controlv1.RequestSnapshot {
	placed := map[int]*controlv1.RequestSnapshot{}
	for _, r := range leases {
		if n := s[r.GetEnqueueSeq()]; n > 0 && placed[n] == nil {
			placed[n] = r
		}
	}
	next := 1
	for _, r := range leases {
		if n := s[r.GetEnqueueSeq()]; n > 0 && placed[n] == r {
			continue
		}
		for placed[next] != nil {
			next++
		}
		placed[next], s[r.GetEnqueueSeq()] = r, next
	}
	return placed
}

// forget drops who has gone.
func (s slots) forget(state *controlv1.EdgeNodeSnapshot) {
	there := map[uint64]bool{}
	for _, r := range state.GetRequests() {
		there[r.GetEnqueueSeq()] = true
	}
	for seq := range s {
		if !there[seq] {
			delete(s, seq)
		}
	}
}

// machineRows are the nodes in the order of the configuration, offline ones in
// their place.
func machineRows(s *controlv1.EdgeNodeSnapshot, held slots, rates *rates) (rows []row) {
	type key struct{ node, provider string }
	leases := map[key][]*controlv1.RequestSnapshot{}
	for _, r := range s.GetRequests() {
		if r.GetNode() != "" {
			k := key{r.GetNode(), r.GetProvider()}
			leases[k] = append(leases[k], r)
		}
	}
	for _, n := range s.GetNodes() {
		for i, note := range console.NodeNotes(s, n) {
			rows = append(rows, row{
				key: fmt.Sprintf("node %s %d", n.GetId(), i), label: n.GetId(), text: note, node: n.GetId(), alarm: true,
			})
		}
		for _, p := range n.GetProviders() {
			name := n.GetId()
			if len(n.GetProviders()) > 1 {
				name += "/" + p.GetId()
			}
			k := key{n.GetId(), p.GetId()}
			rows = append(rows, providerRows(s, n, p, name, held.place(leases[k]), rates)...)
			delete(leases, k)
		}
	}
	// Of a provider that the configuration has no more, or a node that has just gone.
	for _, k := range slices.SortedFunc(maps.Keys(leases), func(a, b key) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.provider, b.provider)) }) {
		placed := held.place(leases[k])
		for _, n := range slices.Sorted(maps.Keys(placed)) {
			rows = append(rows, leaseRow(s, placed[n], k.node+"/"+k.provider, n, rates))
		}
	}
	return rows
}

func providerRows(
	s *controlv1.EdgeNodeSnapshot, n *controlv1.NodeSnapshot, p *controlv1.ProviderSnapshot, name string, placed map[int]*controlv1.RequestSnapshot, rates *rates,
) (rows []row) {
	excluded := !n.GetConnected() || p.GetExcludedReason() != ""
	var free string
	for i, note := range console.ProviderNotes(s, n, p) {
		if text, ok := strings.CutPrefix(note, "free: "); ok {
			free = ": " + text
			continue
		}
		rows = append(rows, row{
			key: fmt.Sprintf("provider %s/%s %d", n.GetId(), p.GetId(), i), label: name, text: note,
			node: n.GetId(), provider: p.GetId(), alarm: excluded,
		})
	}
	for from := 1; from <= int(p.GetEffectiveCapacity()) || len(placed) > 0; from++ {
		if r := placed[from]; r != nil {
			delete(placed, from)
			rows = append(rows, leaseRow(s, r, name, from, rates))
			continue
		}
		if excluded || from > int(p.GetEffectiveCapacity()) {
			continue
		}
		to := from
		for to < int(p.GetEffectiveCapacity()) && placed[to+1] == nil {
			to++
		}
		slot := fmt.Sprintf("/%d", from)
		if to > from {
			slot += fmt.Sprintf("-%d", to)
		}
		rows = append(rows, row{
			key: fmt.Sprintf("free %s/%s %d", n.GetId(), p.GetId(), from), label: name, slot: slot, text: "free" + free, node: n.GetId(), provider: p.GetId(),
		})
		from, free = to, ""
	}
	return rows
}

func leaseRow(s *controlv1.EdgeNodeSnapshot, r *controlv1.RequestSnapshot, name string, number int, rates *rates) row {
	slot := fmt.Sprintf("/%d", number)
	if r.GetContextClass() == "long" {
		slot += "L"
	}
	return row{
		key: fmt.Sprintf("request %d", r.GetEnqueueSeq()), label: name, slot: slot, model: orDash(r.GetModel()), who: who(r), state: r.GetState(),
		age: console.Since(s.GetAt(), r.GetGrantedAt()), rate: rates.of(r), request: r, node: r.GetNode(), provider: r.GetProvider(),
	}
}

// who is the name of the key that asked, or else the number.
func who(r *controlv1.RequestSnapshot) string {
	if r.GetClient() != "" {
		return r.GetClient()
	}
	return fmt.Sprintf("#%d", r.GetEnqueueSeq())
}

// nextRows are who waits, in the order of the queue.
func nextRows(s *controlv1.EdgeNodeSnapshot) (rows []row) {
	for _, r := range s.GetRequests() {
		if r.GetState() != "waiting" {
			continue
		}
		reason := r.GetReason()
		if r.GetBehindSeq() != 0 {
			reason = fmt.Sprintf("%s #%d", reason, r.GetBehindSeq())
		}
		rows = append(rows, row{
			key: fmt.Sprintf("request %d", r.GetEnqueueSeq()), label: fmt.Sprintf("#%d", r.GetEnqueueSeq()),
			model: console.Model(r.GetModel(), r.GetContextClass()), who: orDash(r.GetClient()),
			age: console.Since(s.GetAt(), r.GetEnqueuedAt()), state: reason, text: r.GetUnblocker(), request: r,
		})
	}
	return rows
}

func orDash(s string) string { return cmp.Or(s, "-") }

// matches reports whether a line is about what is looked for.
func (r *row) matches(filter string) bool {
	if filter == "" {
		return true
	}
	text := strings.Join([]string{r.label + r.slot, r.model, r.who, r.state, r.text, r.node, r.provider, r.request.GetRequestId(), r.request.GetModel()}, "\x00")
	return strings.Contains(strings.ToLower(text), strings.ToLower(filter))
}
