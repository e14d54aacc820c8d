package control

import (
	"fmt"
	"strings"

	"github.com/iop-dev/iop/edge/admission"
)

// verdictSentence is why a candidate is passed over, in words; empty where it is
// not.
func verdictSentence(r admission.Reason) string {
	switch r {
	case admission.ReasonNone:
		return ""
	case admission.ReasonNoModel:
		return "Its type does not serve this endpoint."
	case admission.ReasonRefused:
		return "It has refused this request, and opened nothing."
	case admission.ReasonDisabled:
		return "It is switched off, by the configuration or an administrator."
	case admission.ReasonCapacityZero:
		return "It is configured with capacity 0."
	case admission.ReasonUnhealthy:
		return "It is configured as unhealthy."
	case admission.ReasonOffline:
		return "Its node is not connected."
	case admission.ReasonDraining:
		return "It, or its node, takes no new work."
	case admission.ReasonOverCapacity:
		return "It holds more than its capacity, which was lowered."
	case admission.ReasonFull:
		return "All of its slots are taken."
	case admission.ReasonLongFull:
		return "All of its long-context slots are taken."
	default:
		return "An older request goes first."
	}
}

// waitSentence is why a request waits, and what will let it go. holders are who
// holds what it waits for, as far as they have names.
func waitSentence(w *admission.WaiterState, holders []string) (sentence, unblocker string) {
	if w.Reason == admission.ReasonBehind {
		return fmt.Sprintf("Request #%d, which is older and wants the same, goes first.", w.Behind),
			fmt.Sprintf("Request #%d gets a slot, or gives up.", w.Behind)
	}
	on := make([]string, len(w.On))
	for i, key := range w.On {
		on[i] = key.String()
	}
	where := strings.Join(on, ", ")
	var held string
	if len(holders) > 0 {
		held = " (held by " + strings.Join(holders, ", ") + ")"
	}
	switch w.Reason {
	case admission.ReasonLongFull:
		return "All long-context slots of " + where + " are taken.", "The first long-context slot to come back" + held + "."
	case admission.ReasonOverCapacity:
		return where + " hold more than their capacity, which was lowered.", "Enough of what runs there ends" + held + "."
	case admission.ReasonFull:
		return "All slots of " + where + " are taken.", "The first slot to come back" + held + "."
	default:
		return verdictSentence(w.Reason), "One of its providers comes back."
	}
}
