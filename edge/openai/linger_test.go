package openai

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/estimate"
)

// upload is a body that never ends; it checks that the answer was sent before it is read.
type upload struct {
	t       *testing.T
	flushed *bool
	read    int
}

func (u *upload) Read(p []byte) (int, error) {
	require.True(u.t, *u.flushed, "the client waits for its answer")
	u.read += len(p)
	return len(p), nil
}

func (u *upload) Close() error { return nil }

type flushRecorder struct {
	*recorder
	flushed bool
}

func (w *flushRecorder) Flush() { w.flushed = w.status != 0 && w.body.Len() > 0 }

// A client that meets a refusal while it uploads over HTTP/2 gets the answer, and may send on for a bounded while.
func TestARefusedUploadIsReadOnForAWhile(t *testing.T) {
	keyed := settings()
	keyed.Keys = auth.NewKeyring(auth.Credentials{})
	for name, c := range map[string]struct {
		settings Settings
		length   int64
		status   int
	}{"no key": {keyed, -1, 401}, "too large": {settings(), 1 << 30, 413}} {
		for major, limit := range map[int]int{1: 0, 2: lingerBytes} {
			w := &flushRecorder{recorder: newRecorder()}
			req := fuzzRequest(t, hello)
			body := &upload{t: t, flushed: &w.flushed}
			req.Body, req.ContentLength, req.ProtoMajor = body, c.length, major
			New(refuse(nil), estimate.NewCalibration(), nil, c.settings).ServeHTTP(w, req)
			require.Equal(t, c.status, w.status, name)
			require.GreaterOrEqual(t, body.read, limit)
			require.Less(t, body.read, 2*limit+1, name)
			require.Equal(t, major == 1 && c.status == 413, w.Header().Get("Connection") == "close")
		}
	}
}

// Over both protocols the answer to a refused upload of any length arrives.
func TestRefusedUploadsAreAnswered(t *testing.T) {
	over(t, refuse(nil), settings(), func(r *rig) {
		for range 2 {
			req := r.request(http.MethodPost, "/v1/chat/completions", "x")
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 8<<20))), 8<<20
			r.requireError(r.do(req), 413, "request_too_large", "invalid_request_error")
		}
	})
}
