package inference

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/iop-dev/iop/edge/intake"
	"github.com/iop-dev/iop/services/rpcerr"
)

// bodyTimeout is the longest time in which a client may send nothing of its
// request.
const bodyTimeout = time.Minute

// Guard bounds what a client may do to the handler of a Service: the size of its
// request, the time it takes to send it, and the time for which it does not read.
func (s *Service) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known(r)
		settings := s.Settings()
		control := http.NewResponseController(w)
		body := &bodyReader{ReadCloser: r.Body, deadline: deadline{set: control.SetReadDeadline, limit: bodyTimeout}, room: s.Intake.Share()}
		defer body.room.Release()
		if settings.BodyLimit > 0 {
			body.ReadCloser = http.MaxBytesReader(w, r.Body, settings.BodyLimit)
		}
		r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
		r.Body = body
		// HTTP/2 ends a stream at its write deadline even if nothing is being written:
		// twice the limit leaves a silent provider the whole of its own.
		out := &bodyWriter{ResponseWriter: w, control: control, deadline: deadline{set: control.SetWriteDeadline, limit: 2 * settings.IdleTimeout}}
		defer out.deadline.clear() // it would outlive the request on a kept-alive connection
		defer body.deadline.clear()
		h.ServeHTTP(out, r)
	})
}

type bodyKey struct{}

// bodyEnd reads a request's body to its end, where a client that has said all has
// got already: net/http notices the end of an HTTP/1 connection only from then on.
func bodyEnd(ctx context.Context) error {
	body, ok := ctx.Value(bodyKey{}).(*bodyReader)
	if !ok {
		return nil
	}
	var scratch [512]byte
	for {
		n, err := body.Read(scratch[:])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &rpcerr.InvalidError{Field: "the request", Why: "has no end"}
		case n > 0:
			return &rpcerr.InvalidError{Field: "the request", Why: "goes on after its message"}
		}
	}
}

// deadline is moved on as bytes move; not for each of them, as a timer costs more
// than they do. The zero limit is none.
type deadline struct {
	set   func(time.Time) error
	limit time.Duration
	at    time.Time
}

func (d *deadline) arm() {
	now := time.Now()
	if d.limit <= 0 || d.at.Sub(now) > d.limit*3/4 {
		return
	}
	d.at = now.Add(d.limit)
	_ = d.set(d.at) // unsupported only in writers that are no connection
}

func (d *deadline) clear() {
	if !d.at.IsZero() {
		d.at = time.Time{}
		_ = d.set(time.Time{})
	}
}

// bodyReader is a request's body.
type bodyReader struct {
	io.ReadCloser
	deadline deadline
	room     intake.Share
	size     int64 // read so far
	err      error // of the last Read, once there is one
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.deadline.arm()
	n, err := b.ReadCloser.Read(p)
	// Connect gathers a message in a buffer that doubles as it grows.
	if b.size += int64(n); (err == nil || errors.Is(err, io.EOF)) && !b.room.Grow(2*b.size) {
		_, _, err = rpcerr.Run(rpcerr.ErrCrowded)
	}
	if b.err = err; err != nil {
		b.room.Release()
		b.deadline.clear() // one that is left would end the wait for the client's disconnect
	}
	return n, err
}

// bodyWriter is the way to the client.
type bodyWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	deadline deadline
}

// Write implements io.Writer.
func (w *bodyWriter) Write(p []byte) (int, error) {
	w.deadline.arm()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which Connect asks for.
func (w *bodyWriter) Flush() {
	w.deadline.arm()
	_ = w.control.Flush() // the next write tells
}

// Unwrap is for http.ResponseController.
func (w *bodyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
