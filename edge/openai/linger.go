package openai

import (
	"io"
	"net/http"
	"time"
)

// How much of a refused upload is read, and for how long, before its HTTP/2 stream is reset.
const (
	lingerBytes = 1 << 20
	lingerTime  = 500 * time.Millisecond // as net/http does for HTTP/1
)

// linger lets a client that is still uploading see the answer it has already got. Over HTTP/2 the server resets the stream of a request that it
// has not read, and a client that meets the reset while it sends (curl does) takes it for a failed request. One that has seen the answer
// ends its upload. HTTP/1 has such a pause in net/http.
func linger(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 || r.Body == nil || r.Body == http.NoBody {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	_ = rc.SetReadDeadline(time.Now().Add(lingerTime)) // unsupported only in writers that are no connection
	_, _ = io.CopyN(io.Discard, r.Body, lingerBytes)
}
