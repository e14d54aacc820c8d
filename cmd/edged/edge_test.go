package edged

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/events"
	"github.com/iop-dev/iop/edge/events/eventstest"
)

const small = `edge: {listen: "127.0.0.1:0"}
nodes:
  - id: n
    token_sha256: "411aef1cd40386a145545e71497c17773b01cee947d867079e4c499db71e8321"
    providers: [{id: sim, type: simulator}]
models: [{id: m, providers: [{node: n, provider: sim}]}]
`

// A refresh is all or nothing: a bad file changes nothing and is told of, a good
// one counts.
func TestReloadIsAllOrNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(small), 0o600))
	e, err := New(Options{ConfigPath: file, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	eventstest.Saturate(e.Events())
	heard := e.Events().Subscribe(4)
	defer heard.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()

	require.NoError(t, os.WriteFile(file, []byte(small+"bogus: 1\n"), 0o600))
	_, err = e.Reload()
	var problems configs.Problems
	require.ErrorAs(t, err, &problems)
	require.Equal(t, events.ConfigRefused, (<-heard.C).Kind)
	require.Contains(t, e.state().LastRefreshError, "bogus")
	require.EqualValues(t, 1, e.state().ConfigRevision)
	require.Len(t, e.models(), 1)

	more := strings.Replace(small, "models: [", "models: [{id: second, providers: [{node: n, provider: sim}]}, ", 1)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(more, "127.0.0.1:0", "127.0.0.1:1", 1)), 0o600))
	r, err := e.Reload()
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Revision)
	require.Contains(t, r.Changes, "models[second]: added")
	require.Len(t, r.NeedsRestart, 3, "the listener, and the two that stand for it: %v", r.NeedsRestart)
	require.Equal(t, events.ConfigApplied, (<-heard.C).Kind)
	require.Empty(t, e.state().LastRefreshError)
	require.Len(t, e.models(), 2)

	stop()
	require.NoError(t, <-ended)
	_, err = http.Get("http://" + e.Addr() + "/healthz")
	require.Error(t, err, "the listener is closed")
	http.DefaultClient.CloseIdleConnections()
}

func TestAnEdgeWithoutAFileHasNothingToReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(small), 0o600))
	e, err := New(Options{ConfigPath: file, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer e.close()
	e.path = ""
	_, err = e.Reload()
	require.ErrorContains(t, err, "nothing to reload")
}
