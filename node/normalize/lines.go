package normalize

import (
	"bytes"
	"fmt"
)

// LineLimit bounds one line of a provider's answer, and one event of several
// lines, in bytes.
const LineLimit = 4 << 20

// lines cuts a stream into lines, whatever pieces it comes in.
type lines struct {
	partial []byte // a line whose end has not come
}

// each calls f with every line that is whole now, without its line end. A line is
// valid during the call.
func (l *lines) each(b []byte, f func(line []byte) error) error {
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return l.keep(b)
		}
		line := b[:end]
		if len(l.partial) > 0 {
			if err := l.keep(line); err != nil {
				return err
			}
			line = l.partial
		}
		b = b[end+1:]
		err := f(bytes.TrimSuffix(line, []byte("\r")))
		l.reset()
		if err != nil {
			return err
		}
	}
}

// rest calls f with a last line that has no end, if there is one.
func (l *lines) rest(f func(line []byte) error) error {
	defer l.reset()
	if len(l.partial) == 0 {
		return nil
	}
	return f(bytes.TrimSuffix(l.partial, []byte("\r")))
}

func (l *lines) keep(b []byte) error {
	if len(l.partial)+len(b) > LineLimit {
		return fmt.Errorf("the provider sent a line of more than %d bytes", LineLimit)
	}
	l.partial = append(l.partial, b...)
	return nil
}

// keptLine is the largest room for a line that is kept for the next one.
const keptLine = 64 << 10

func (l *lines) reset() {
	l.partial = l.partial[:0]
	if cap(l.partial) > keptLine {
		l.partial = nil
	}
}
