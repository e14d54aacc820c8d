package events

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASubscriberThatIsStuckHoldsNobodyUp(t *testing.T) {
	var b Bus
	stuck, reads := b.Subscribe(1), b.Subscribe(8)
	for _, subject := range []string{"n1", "n2", "n3"} {
		b.Publish(Event{Kind: NodeConnected, Subject: subject})
	}
	require.EqualValues(t, 2, b.Dropped())
	require.Equal(t, "n1", (<-stuck.C).Subject)
	for _, subject := range []string{"n1", "n2", "n3"} {
		require.Equal(t, subject, (<-reads.C).Subject)
	}

	stuck.Close()
	stuck.Close()
	_, open := <-stuck.C
	require.False(t, open)
	b.Publish(Event{Kind: NodeDisconnected, Subject: "n1"})
	require.Equal(t, NodeDisconnected, (<-reads.C).Kind)
	require.EqualValues(t, 2, b.Dropped())
}
