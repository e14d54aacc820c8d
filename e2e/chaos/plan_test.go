//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedule_IsTheSeedsAndMeetsEveryClass(t *testing.T) {
	plan := schedule(7, 10*time.Minute)
	require.Equal(t, plan, schedule(7, 10*time.Minute))
	require.NotEqual(t, plan, schedule(8, 10*time.Minute))
	require.Equal(t, plan[:20], schedule(7, 10*time.Minute)[:20])
	had := map[class]int{}
	for i, f := range plan {
		had[f.class]++
		if i > 0 {
			require.Greater(t, f.at, plan[i-1].at)
		}
		if f.class == edgeKill || f.class == edgeStop {
			require.Less(t, f.at, 6*time.Minute, "the Edge lives on in the last part")
		}
		if f.class == nodeKill || f.class == nodeStop {
			require.NotEqual(t, nodeIDs[0], f.target, "the first node's process lives through it all")
		}
	}
	short := map[class]int{}
	for _, f := range schedule(7, time.Minute) {
		short[f.class]++
	}
	for _, w := range weights {
		require.Positive(t, had[w.class], w.class)
		require.Positive(t, short[w.class], "in a minute: %s", w.class)
	}
	require.Greater(t, len(plan), 10*500/60, "500 faults an hour")
}
