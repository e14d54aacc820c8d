package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The body of a normalized run names no target: it goes as it is, and Begin tells.
func TestANormalizedRunKeepsItsBody(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	req := request()
	req.ModelStart, req.ModelEnd, req.ContextWindow = 0, 0, 8192
	done := r.do(t.Context(), req, &sink{})
	stream := <-r.taken
	stream.answers <- whole
	require.NoError(t, <-done)
	require.Equal(t, string(req.Body), string(stream.body))
	require.Equal(t, len(req.Body), stream.begin.ContentLength)
	require.Equal(t, "big-name-on-n", stream.begin.Target)
	require.Equal(t, 8192, stream.begin.ContextWindow)

	done = r.do(t.Context(), request(), &sink{})
	stream = <-r.taken
	stream.answers <- whole
	require.NoError(t, <-done)
	require.Empty(t, stream.begin.Target, "other bodies name it themselves")
	require.Zero(t, stream.begin.ContextWindow)
}
