package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"buf.build/go/protoyaml"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Unmarshal reads the text of a file strictly into a message. An error is
// always [Problems]: all that is wrong, at once. The message is then not to be
// used.
func Unmarshal(file string, text []byte, into proto.Message) error {
	_, problems := Decode(file, text, into)
	return problems.Err()
}

// Decode is [Unmarshal] for readers with rules of their own: with the places of
// the values, and with the message filled as far as the file can be read: what
// has a problem of its own is left out of it ([Document.Broken]), but entries of
// lists keep their numbers.
func Decode(file string, text []byte, into proto.Message) (*Document, Problems) {
	doc, problem := parse(file, text)
	if problem != nil {
		return doc, Problems{*problem}
	}
	s := &strict{doc: doc, root: into.ProtoReflect().Descriptor(), budget: maxAliasNodes}
	if doc.root != nil {
		if p := doc.ofAnother(s.root); p != nil {
			doc.Readable = false
			return doc, Problems{*p}
		}
		if !s.message(doc.root, s.root, "") {
			doc.Readable = false
			return doc, s.problems
		}
		options := protoyaml.UnmarshalOptions{Path: file, CustomUnmarshaler: &judged{root: doc.root}}
		// As many lines as the file has: protoyaml quotes them in its errors.
		blank := append([]byte("{}"), bytes.Repeat([]byte("\n"), 1+bytes.Count(text, []byte("\n")))...)
		if err := options.Unmarshal(blank, into); err != nil {
			// The nodes have been judged: only a disagreement of the two
			// readers gets here, and it must not pass for a good file.
			s.problems = append(s.problems, doc.Problemf("", "%v", err))
		}
	}
	doc.root = nil // judged and emptied; the places stay
	return doc, append(s.problems, judge(doc, into)...).Sorted()
}

// UnreadableError is a configuration file of which nothing can be read.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return "read configuration: " + e.Err.Error() }

// Unwrap is why.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Read is the text of a file of at most [MaxFileBytes]. Errors are [Problems] or
// an [UnreadableError].
func Read(file string) ([]byte, error) { return wholeText(readRegular, file) }

// ReadOnce is [Read] for commands that look at a file and end: it may be a pipe
// or a device as well, such as /dev/stdin, and is waited for.
func ReadOnce(file string) ([]byte, error) { return wholeText(readAny, file) }

func wholeText(read func(file string, limit int64) ([]byte, error), file string) ([]byte, error) {
	text, err := read(file, MaxFileBytes)
	if err != nil {
		return nil, &UnreadableError{err}
	}
	if len(text) > MaxFileBytes {
		return nil, Problems{{File: file, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has more than %d bytes; at most that many are read", MaxFileBytes)}}
	}
	return text, nil
}

// readRegular reads a file up to one byte more than limit. Pipes and devices are
// refused: they may have no end, or never begin, and a refresh must not wait.
func readRegular(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder, not a file", file)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is a pipe or device; expected a regular file", file)
	}
	return readAny(file, limit)
}

// readAny reads a file up to one byte more than limit.
func readAny(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	return text, errors.Join(err, f.Close())
}

// judged puts the judged nodes in the place of those that protoyaml parses: it
// takes text only, and the text has lost its nulls, aliases and places.
type judged struct{ root *yaml.Node }

func (j *judged) Unmarshal(n *yaml.Node, _ proto.Message) (bool, error) {
	if j.root != nil {
		*n, j.root = *j.root, nil
	}
	return false, nil
}
