package provider

import (
	"io"
	"net/http"
)

// unframed reports whether nothing but the connection's end says that the answer
// is over: HTTP/1 without a length and without chunks. Such an end looks the same
// when the provider has died.
func unframed(resp *http.Response) bool {
	return resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
}

// jsonBody is the body of an unframed JSON answer. An end before its document is
// closed is a loss.
type jsonBody struct {
	io.ReadCloser
	begun, closed     bool
	inString, escaped bool
	depth             int
}

// Read implements io.Reader.
func (b *jsonBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.see(c)
	}
	if isEnd(err) && !b.closed {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// see follows strings and brackets only: whether the document is otherwise right
// is for the client to judge.
func (b *jsonBody) see(c byte) {
	switch {
	case b.escaped:
		b.escaped = false
	case b.inString:
		b.escaped = c == '\\'
		b.inString = c != '"'
		b.closed = !b.inString && b.depth == 0
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
	case c == '"':
		b.begun, b.inString = true, true
	case c == '{' || c == '[':
		b.begun = true
		b.depth++
		b.closed = false
	case c == '}' || c == ']':
		b.depth--
		b.closed = b.depth <= 0
	case !b.begun:
		b.begun, b.closed = true, true // a bare number or word: its end cannot be told
	}
}
