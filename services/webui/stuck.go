package webui

import (
	"net/http"
	"time"
)

// takenAtOnce is what a reader has to take within its limit, in bytes.
const takenAtOnce = 64 << 10

// EndStuck bounds each write of h: the connection of a page that was forgotten, or
// of a machine that sleeps, does not live for ever. A write that its caller does not
// take within the limit fails, and so ends the call; the time between two writes
// does not count.
func EndStuck(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&boundedWriter{ResponseWriter: w, rc: http.NewResponseController(w), limit: limit}, r)
	})
}

// boundedWriter has a deadline while it writes, and none at other times: over
// HTTP/2 a deadline ends the stream though nothing waits to be written, and over
// HTTP/1 it is the connection's, which may serve others afterwards.
type boundedWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
}

// Unwrap is for http.ResponseController.
func (b *boundedWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Write writes in pieces, so that a slow reader of something large is none that is
// stuck.
func (b *boundedWriter) Write(p []byte) (written int, err error) {
	for {
		piece := p[:min(len(p), takenAtOnce)]
		var n int
		err = b.bounded(func() error {
			n, err = b.ResponseWriter.Write(piece)
			return err
		})
		written += n
		if p = p[n:]; err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (b *boundedWriter) Flush() { _ = b.FlushError() }

// FlushError is Flush for http.ResponseController.
func (b *boundedWriter) FlushError() error { return b.bounded(b.rc.Flush) }

func (b *boundedWriter) bounded(write func() error) error {
	// Unsupported only in writers that are no connection.
	_ = b.rc.SetWriteDeadline(time.Now().Add(b.limit))
	err := write()
	if err == nil {
		_ = b.rc.SetWriteDeadline(time.Time{})
	}
	return err
}
