package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Explain is the decision record of one request: what it is, how it stands or
// ended, and at each evaluation every candidate with why it was passed over (U7).
func Explain(x *controlv1.ExplainRequestResponse, width int) []string {
	r, e := x.GetRequest(), x.GetEnding()
	head := r.GetRequestId() + "  " + cmp.Or(e.GetOutcome(), r.GetState())
	if seq := r.GetEnqueueSeq(); seq != 0 {
		head = number(seq) + "  " + head
	}
	lines := []string{Fit(head, width)}
	field := func(name, value string) {
		if value != "" {
			lines = append(lines, hanging(fmt.Sprintf("%-9s ", name), value, width)...)
		}
	}
	field("model", Model(r.GetModel(), r.GetContextClass()))
	field("input", fmt.Sprintf("about %d tokens; long from %d", r.GetEstimatedInputTokens(), x.GetLongContextThresholdTokens()))
	field("client", r.GetClient())
	field("endpoint", r.GetEndpoint())
	field("queue", x.GetScope())
	if r.GetEnqueuedAt() != nil {
		field("since", r.GetEnqueuedAt().AsTime().UTC().Format(time.RFC3339Nano))
	}
	if r.GetNode() != "" {
		where := r.GetNode() + "/" + r.GetProvider()
		if r.GetTarget() != "" {
			where += " as " + r.GetTarget()
		}
		field("where", where)
	}
	if x.GetAttempts() > 1 {
		field("hand-offs", fmt.Sprint(x.GetAttempts()))
	}
	switch {
	case e != nil:
		if e.GetEnqueueSeq() != 0 {
			field("times", times(e))
		}
		if e.GetNode() != "" {
			field("tokens", "input "+tokens(e.InputTokens)+", output "+tokens(e.OutputTokens)+", as the provider counted")
		}
		field("reason", e.GetReason())
		field("detail", e.GetDetail())
		if e.GetProviderStatus() != 0 {
			field("provider", fmt.Sprintf("answered with HTTP status %d", e.GetProviderStatus()))
		}
	case r.GetState() == "waiting":
		field("reason", r.GetReason()+": "+r.GetSentence())
		field("next", r.GetUnblocker())
	default:
		field("answer", fmt.Sprintf("%s, %s so far", plural(r.GetAnswerParts(), "part"), plural(r.GetAnswerBytes(), "byte")))
	}
	lines = append(lines, moments(x, width)...)
	if len(x.GetCandidates()) > 0 {
		lines = append(append(lines, "", "NOW"), verdicts(x.GetCandidates(), 0, width)...)
	}
	return lines
}

func times(e *controlv1.Ending) string {
	parts := []string{"waited " + Span(e.GetQueueMs())}
	if e.GetFirstByteMs() > 0 {
		parts = append(parts, "first byte after "+Span(e.GetFirstByteMs()))
	}
	if e.GetRunMs() > 0 {
		parts = append(parts, "ran "+Span(e.GetRunMs()))
	}
	return strings.Join(parts, ", ")
}

func tokens(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

func moments(x *controlv1.ExplainRequestResponse, width int) []string {
	if len(x.GetMoments()) == 0 {
		return []string{"", "No decision is on record: it never came to the queue."}
	}
	lines := []string{"", "DECISIONS"}
	start := x.GetRequest().GetEnqueuedAt().AsTime()
	for i, m := range x.GetMoments() {
		if i == 1 && x.GetMomentsForgotten() > 0 {
			lines = append(lines, fmt.Sprintf("  (%s forgotten)", plural(x.GetMomentsForgotten(), "moment")))
		}
		after := m.GetAt().AsTime().Sub(start)
		text := strings.ReplaceAll(m.GetKind(), "_", " ")
		switch {
		case m.GetNode() != "":
			text += ": " + m.GetNode() + "/" + m.GetProvider()
		case m.GetResult() != "":
			text += ": " + m.GetResult()
		case m.GetReason() != "" && m.GetKind() == "end":
			text += ": " + m.GetReason()
		case m.GetReason() != "":
			text += ": waits, " + m.GetReason()
		}
		lines = append(lines, hanging(fmt.Sprintf("+%-8s ", Span(uint64(max(0, after.Milliseconds())))), text, width)...) //nolint:gosec // not negative
		lines = append(lines, verdicts(m.GetCandidates(), m.GetMoreCandidates(), width)...)
	}
	return lines
}

// verdicts are candidates: how full each is, and why it is passed over.
func verdicts(all []*controlv1.CandidateVerdict, more uint32, width int) []string {
	var lines []string
	for _, v := range all {
		what := "free"
		if v.GetReason() != "" {
			what = v.GetReason() + ": " + v.GetSentence()
		}
		slots := fmt.Sprintf("%d/%d", v.GetInFlight(), v.GetCapacity())
		if v.GetLongContextCapacity() > 0 {
			slots += fmt.Sprintf(" long %d/%d", v.GetLongInFlight(), v.GetLongContextCapacity())
		}
		where := "  " + v.GetNode() + "/" + v.GetProvider() + "  " + slots
		if whole := where + "  " + what; ansi.StringWidth(Clean(whole)) <= width {
			lines = append(lines, Fit(whole, width))
			continue
		}
		lines = append(append(lines, Fit(where, width)), Wrap(what, width, 6)...)
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("  and %s more", plural(more, "candidate")))
	}
	return lines
}
