package e2e

import (
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// An Edge that is told to stop lets running work finish and tells who waits that
// it drains, whatever it takes away from them; then it exits 0.
func TestAnEdgeThatStopsFinishesWhatRuns(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	r := oneSlot(t, s)
	running := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	waits := r.background(t.Context(), chatBody("m", true, ""))
	r.waiting(1)

	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	told := <-waits
	require.Equal(t, http.StatusServiceUnavailable, told.status)
	require.Equal(t, "draining", told.code(t))
	require.NotEmpty(t, told.header.Get("Retry-After"))
	late := r.ask(t.Context(), chatBody("m", false, ""))
	require.Equal(t, "draining", late.code(t))

	g.release()
	done := <-running
	require.NoError(t, done.err)
	require.Equal(t, http.StatusOK, done.status)
	<-r.edge.done
	require.Zero(t, r.edge.cmd.ProcessState.ExitCode(), r.edge.log())
	_, _, total, _ := s.counts()
	require.Equal(t, 1, total)
}
