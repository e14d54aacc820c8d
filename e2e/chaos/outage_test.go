//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutages_AnOrderlyStopExcusesOnlyWhatTheEdgeHadNotYet(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	var o outages
	require.False(t, o.excuse(long, false, 0), "there was none")
	end := o.begin(true)
	require.False(t, o.excuse(long, false, time.Second), "it ran")
	require.True(t, o.excuse(time.Now(), false, time.Second), "it came too late")
	require.False(t, o.excuse(time.Now(), true, time.Second), "its answer had begun")
	end()
	require.False(t, o.excuse(time.Now().Add(time.Second), false, time.Second), "it came after")

	end = o.begin(false)
	require.True(t, o.excuse(long, true, 0), "nothing outlives a kill")
	end()
	require.False(t, o.excuse(time.Now().Add(time.Second), true, 0))
}
