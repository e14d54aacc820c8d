package webui

import (
	"io"
	"net/http"
	"time"
)

// bodyPatience is how long the body of a request may take that nobody reads.
const bodyPatience = 10 * time.Second

// hurry bounds how long the rest of a request may take to come. A reply to HTTP/1.1
// is not sent before: net/http first reads what there is of the body. It is for
// calls that end at once; the server sets its own limit for what comes next.
func hurry(w http.ResponseWriter, limit time.Duration) {
	// Unsupported only in writers that are no connection.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
}

// Hurried bounds how long a request's body may take to come, from its head on. A
// call may last longer than that: it is the callers' to send all they have to say at
// its begin.
func Hurried(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			hurry(w, limit)
			told := *r
			told.Body = &hurried{r.Body, http.NewResponseController(w)}
			r = &told
		}
		h.ServeHTTP(w, r)
	})
}

// hurried is a body that lifts its limit at its end: from there on a read is the
// server's own, which learns by it that the caller has gone.
type hurried struct {
	io.ReadCloser
	rc *http.ResponseController
}

// Read implements io.Reader.
func (b *hurried) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}
