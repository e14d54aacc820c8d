package normalize

import (
	"bytes"
	"errors"
	"mime"
)

// ErrIncomplete is returned by [Answer.Next] for an answer that ended without
// the provider having said that it is whole.
var ErrIncomplete = errors.New("the provider ended its answer before it was complete")

// reader reads the native answer of one form.
type reader interface {
	// line takes one line of a stream, or the whole of a JSON document.
	line([]byte) error
	// end is called once after the last one; it completes what is complete.
	end() error
}

// Answer turns the bytes of one provider's answer into the bytes of its events.
type Answer struct {
	events *events
	reader reader
	lines  lines
	form   *Form
	status int
	// document is true for an answer that is one JSON document, not a stream.
	document   bool
	said       []byte // of an error, at most excerptLimit
	retryAfter int
}

// Answer begins the answer of one request.
func (f *Form) Answer() *Answer {
	e := newEvents()
	return &Answer{events: e, reader: f.reader(e), form: f}
}

// Head tells status and content type, before any byte; retryAfter in seconds is
// 0 if the provider names none.
func (a *Answer) Head(status int, contentType string, retryAfter int) {
	kind, _, err := mime.ParseMediaType(contentType)
	a.status, a.retryAfter = status, retryAfter
	a.document = a.form.documents && err == nil && kind == "application/json"
}

// Next takes the next bytes, the last ones with end, and returns the events that
// they complete, valid until the next call. An error comes with the events before
// it: the provider does not speak its form, so that the run cannot go on, or with
// end has not said that its answer is whole ([ErrIncomplete]).
func (a *Answer) Next(b []byte, end bool) ([]byte, error) {
	a.recycle()
	err := a.read(b)
	if err == nil && end {
		err = a.close()
	}
	return a.events.out, err
}

func (a *Answer) read(b []byte) error {
	switch {
	case a.events.over:
		return nil
	case a.failed():
		a.said = append(a.said, b[:min(len(b), excerptLimit-len(a.said))]...)
		return nil
	case a.document:
		return a.lines.keep(b)
	}
	return a.lines.each(b, a.reader.line)
}

func (a *Answer) close() error {
	if a.failed() {
		a.events.fail(a.status, a.said, a.retryAfter)
		return nil
	}
	if err := a.lines.rest(func(line []byte) error { return a.reader.line(bytes.TrimSpace(line)) }); err != nil {
		return err
	}
	if err := a.reader.end(); err != nil {
		return err
	}
	if !a.events.over {
		return ErrIncomplete
	}
	return nil
}

func (a *Answer) failed() bool { return a.status < 200 || a.status > 299 }

// keptOut is the largest room for events that is kept for the next ones.
const keptOut = 64 << 10

func (a *Answer) recycle() {
	a.events.out = a.events.out[:0]
	if cap(a.events.out) > keptOut {
		a.events.out = nil
	}
}
