package metrics

import (
	"testing"
	"time"

	"github.com/iop-dev/iop/edge/dispatch"
)

// What one completed request costs.
func BenchmarkRequest(b *testing.B) {
	m := New("v", func() State { return State{} }, nil)
	e := &dispatch.Ending{
		Group: "m", Outcome: "completed", Grant: dispatch.Grant{Node: "n", Provider: "p"}, Run: time.Second, FirstByte: time.Second,
		Attempts: 1, InputTokens: 1, OutputTokens: 1,
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Received()
		m.Ended(e)
	}
}
