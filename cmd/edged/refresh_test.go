package edged

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/state"
	"github.com/iop-dev/iop/services/admin"
	"github.com/iop-dev/iop/services/rpcerr"
)

// idle is an Edge that does not run: what it is told can be called on it.
func idle(t *testing.T, log *bytes.Buffer) (e *Edge, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(small), 0o600))
	e, err := New(Options{ConfigPath: file, Clock: clockwork.NewFakeClock(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(e.close)
	return e, file
}

// The watch reports a content once, however often it looks, and each other one.
func TestS08_TheWatchReportsAContentOnce(t *testing.T) {
	var log bytes.Buffer
	e, file := idle(t, &log)
	look := func(text string) int {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.True(t, e.reloadFile(e.readFile))
		return len(e.state().Refreshes)
	}
	require.Equal(t, 1, look(small), "as at the start")
	require.Equal(t, 2, look(small+"bogus: 1\n"))
	require.Equal(t, 2, look(small+"bogus: 1\n"))
	require.Equal(t, 1, strings.Count(log.String(), "configuration not reloaded"))
	require.Contains(t, e.state().LastRefreshError, "bogus")
	require.Equal(t, 3, look(small+"bogus: 2\n"), "other content, other report")
	require.Equal(t, 4, look(small), "as at the start again, which takes the error away")
	require.Empty(t, e.state().LastRefreshError)
	require.Equal(t, 4, look(small))
	require.False(t, e.reloadFile(func() ([]byte, error) { return nil, errUnsettled }))
	require.Equal(t, 4, look(small))
	require.Equal(t, []string{"file", "file", "file", "start"}, func() (of []string) {
		for _, r := range e.state().Refreshes {
			of = append(of, r.Source)
		}
		return of
	}())
	require.Equal(t, 5, func() int { _, err := e.Reload(); require.NoError(t, err); return len(e.state().Refreshes) }(), "who asks is answered")
}

// Once a stop has begun nothing gives waiting requests their models back.
func TestAfterAStopHasBegunNothingIsChanged(t *testing.T) {
	var log bytes.Buffer
	e, _ := idle(t, &log)
	e.rejectWaiters()
	_, err := e.Reload()
	require.ErrorIs(t, err, rpcerr.ErrStopping)
	_, err = e.setOverride(admin.Caller{}, admin.Order{Node: "n", Provider: "sim", Mode: state.Disabled})
	require.ErrorIs(t, err, rpcerr.ErrStopping)
	require.True(t, e.reloadFile(e.readFile), "the watch has nothing left to do")
	_, err = e.broker.Acquire(t.Context(), admission.Request{Group: "m", Surface: admission.SurfaceChat})
	require.Error(t, err)
	require.Equal(t, admission.ReasonOffline, e.state().Admission.Resources[0].Excluded)
}

// Who did what, from where, is in the log.
func TestOverridesAndRefreshesAreAudited(t *testing.T) {
	var log bytes.Buffer
	e, _ := idle(t, &log)
	by := admin.Caller{Token: "laura", Address: "192.0.2.7:555"}
	for _, o := range []admin.Order{
		{Node: "n", Provider: "sim", Mode: state.Draining},
		{Node: "n", Provider: "sim"},
		{Node: "n", Mode: state.Disabled},
		{Node: "n", Mode: state.Enabled},
	} {
		_, err := e.setOverride(by, o)
		require.NoError(t, err)
	}
	require.Empty(t, e.state().Overrides, "to enable a node is to reset it")
	_, err := e.reloadByAdmin(by)
	require.NoError(t, err)
	_, err = e.setOverride(by, admin.Order{Node: "m", Provider: "sim", Mode: state.Disabled})
	require.Error(t, err)
	for _, want := range []string{
		`msg="admin call" token=laura address=192.0.2.7:555 call=override node=n provider=sim order=draining durable=false ok=true`,
		`call=override node=n provider=sim order=reset durable=true ok=true`,
		`call=override node=m provider=sim order=disabled durable=false ok=false`,
		`call=override node=n provider="" order=disabled durable=false`,
		`call=override node=n provider="" order=reset durable=true`,
		`msg="admin call" token=laura address=192.0.2.7:555 call=reload ok=true`,
	} {
		require.Contains(t, log.String(), want)
	}
}

// Where secrets are in files of their own, too, a start is no change of the file.
func TestS08_AWatchFindsTheFileAsTheStartDid(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte("node-secret"), 0o600))
	file := filepath.Join(t.TempDir(), "edge.yaml")
	text := strings.Replace(small, `token_sha256: "411aef1cd40386a145545e71497c17773b01cee947d867079e4c499db71e8321"`, "token_file: "+filepath.ToSlash(secret), 1)
	require.NotEqual(t, small, text)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	e, err := New(Options{ConfigPath: file, Clock: clockwork.NewFakeClock(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(e.close)
	require.True(t, e.reloadFile(e.readFile))
	require.Len(t, e.state().Refreshes, 1)
}

// However much is wrong with a file, and in whatever script, status can be sent.
func TestS08_AHistoryOfManyErrorsStaysSmallAndReadable(t *testing.T) {
	var log bytes.Buffer
	e, file := idle(t, &log)
	text := small
	for n := range 1000 {
		text += fmt.Sprintf("bogus_%d: 1\n", n)
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := e.Reload()
	require.ErrorContains(t, err, "and 800 more")
	require.Less(t, len(e.state().LastRefreshError), 100<<10)

	var h history
	for shift := range 3 { // the cut goes through a character in two of them
		h.add(Refresh{Err: errors.New(strings.Repeat("x", shift) + strings.Repeat("키", errorKept))})
		require.True(t, utf8.ValidString(h.shown()[0].Error))
		require.InDelta(t, errorKept, len(h.shown()[0].Error), utf8.UTFMax)
	}
	h.add(Refresh{Err: errors.New("open edge\xff.yaml: no such file")})
	require.Equal(t, "open edge?.yaml: no such file", h.refused())
}
