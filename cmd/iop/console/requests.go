package console

import (
	"fmt"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Requests are who runs and who waits.
func Requests(s *controlv1.EdgeNodeSnapshot, width int) []string {
	var rows []row
	for _, r := range s.GetRequests() {
		if r.GetState() != "waiting" {
			rows = append(rows, row{cells: []string{
				fmt.Sprintf("#%d", r.GetEnqueueSeq()), r.GetRequestId(), Model(r.GetModel(), r.GetContextClass()), orDash(r.GetClient()), r.GetState(),
				r.GetNode() + "/" + r.GetProvider(), Since(s.GetAt(), r.GetGrantedAt()),
			}})
		}
	}
	lines := []string{fmt.Sprintf("%d running, %d waiting", s.GetInFlightTotal(), s.GetQueueTotal())}
	if len(rows) > 0 {
		lines = append(append(lines, ""), table([]column{
			{head: "RUNNING"}, {head: "ID", least: 8}, {head: "MODEL", least: 8}, {head: "WHO", least: 5}, {head: "STATE"}, {head: "WHERE", least: 8}, {head: "AGE", right: true},
		}, rows, width)...)
	}
	if s.GetQueueTotal() > 0 {
		lines = append(append(lines, ""), waiting(s, width)...)
	}
	return lines
}

// waiting are those who wait, in the order of the queue, each with its reason, the
// sentence and what will let it go (U6).
func waiting(s *controlv1.EdgeNodeSnapshot, width int) []string {
	var rows []row
	for _, r := range s.GetRequests() {
		if r.GetState() == "waiting" {
			rows = append(rows, row{
				[]string{
					fmt.Sprintf("#%d", r.GetEnqueueSeq()), r.GetRequestId(), Model(r.GetModel(), r.GetContextClass()), orDash(r.GetClient()),
					Since(s.GetAt(), r.GetEnqueuedAt()), r.GetReason(),
				},
				[]string{r.GetSentence() + " Next: " + r.GetUnblocker()},
			})
		}
	}
	lines := table([]column{
		{head: "WAITING"}, {head: "ID", least: 8}, {head: "MODEL", least: 8}, {head: "WHO", least: 5}, {head: "WAIT", right: true}, {head: "REASON"},
	}, rows, width)
	if more := int(s.GetQueueTotal()) - len(rows); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// Model is a model's name, with a mark for long contexts.
func Model(model, class string) string {
	if class == "long" {
		return model + " (long)"
	}
	return model
}

// Endings are the last requests that ended, the newest first.
func Endings(s *controlv1.EdgeNodeSnapshot, width int) []string {
	var rows []row
	for _, e := range s.GetEndings() {
		r := row{cells: []string{
			number(e.GetEnqueueSeq()), e.GetRequestId(), Model(e.GetModel(), e.GetContextClass()), orDash(e.GetClient()), e.GetOutcome(),
			Since(s.GetAt(), e.GetAt()),
		}}
		if e.GetDetail() != "" && e.GetOutcome() != "completed" {
			r.notes = []string{e.GetDetail()}
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return []string{"nothing has ended yet"}
	}
	return table([]column{
		{head: "ENDED"}, {head: "ID", least: 8}, {head: "MODEL", least: 8}, {head: "WHO", least: 5}, {head: "OUTCOME", least: 10}, {head: "AGO", right: true},
	}, rows, width)
}

// number is that of a request; one that was refused before admission has none.
func number(seq uint64) string {
	if seq == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", seq)
}
