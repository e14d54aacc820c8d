package eventstest

import (
	"os"

	"github.com/iop-dev/iop/edge/events"
)

// Blocked reports whether the tests are run with a saturated bus.
func Blocked() bool { return os.Getenv("IOP_TEST_EVENTS") == "blocked" }

// Saturate puts subscribers on the bus that never read, and fills them, if the
// tests are run so. Whoever subscribes afterwards sees nothing of it.
func Saturate(b *events.Bus) {
	if !Blocked() {
		return
	}
	const stuck, room = 8, 16
	for range stuck {
		b.Subscribe(room)
	}
	for b.Dropped() < stuck {
		b.Publish(events.Event{Kind: "filler"})
	}
}
