package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxFileBytes is the size of the largest file that is read.
const MaxFileBytes = 4 << 20

// place is where a value stands in its file, from 1.
type place struct{ line, column int }

// Document is a read file: it knows where each value stands.
type Document struct {
	// File is the name of the file as it appears in problems.
	File string
	// Readable is false when the file is not YAML, or no mapping: then nothing of
	// it is in the message.
	Readable bool

	root   *yaml.Node // nil when the file has no content
	places map[string]place
	broken map[string]bool // paths of values that have a problem of their own
}

// Broken reports whether the value at path, or one that it lies in, has a
// problem of its own: what the message has there is not what was meant, and a
// rule that builds on it would complain about a mistake that nobody made.
func (d *Document) Broken(path string) bool {
	for ; path != ""; path = above(path) {
		if d.broken[path] {
			return true
		}
	}
	return d.broken[""]
}

// At returns line and column of the value at path ("nodes[0].id"), or, when the
// file does not have it, of the nearest part of the path that it has.
func (d *Document) At(path string) (line, column int) {
	for path != "" {
		if p, ok := d.places[path]; ok {
			return p.line, p.column
		}
		path = above(path)
	}
	return 1, 1
}

// above is the path without its last part.
func above(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// Has reports whether the file itself has a value at path.
func (d *Document) Has(path string) bool {
	_, ok := d.places[path]
	return ok
}

// Where is "line 3" for the value at path: for messages that name a second
// place.
func (d *Document) Where(path string) string {
	line, _ := d.At(path)
	return "line " + strconv.Itoa(line)
}

// Problemf makes a problem of the value at path.
func (d *Document) Problemf(path, format string, args ...any) Problem {
	line, column := d.At(path)
	return Problem{File: d.File, Line: line, Column: column, Path: path, Message: fmt.Sprintf(format, args...)}
}

// parse reads the text of a file into YAML nodes. It refuses what is too large,
// not UTF-8, or more than one document; a byte order mark and CRLF are
// tolerated.
func parse(file string, text []byte) (*Document, *Problem) {
	d := &Document{File: file, places: map[string]place{}, broken: map[string]bool{}}
	if len(text) > MaxFileBytes {
		return d, &Problem{File: file, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has %d bytes; at most %d are read", len(text), MaxFileBytes)}
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if p := unreadable(file, text); p != nil {
		return d, p
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var node yaml.Node
	err := decoder.Decode(&node)
	if errors.Is(err, io.EOF) {
		d.Readable = true
		return d, nil
	}
	if err != nil {
		return d, syntaxProblem(file, text, err)
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case err == nil:
		return d, &Problem{File: file, Line: max(1, second.Line), Column: max(1, second.Column),
			Message: "a second YAML document begins here; a file holds one"}
	case !errors.Is(err, io.EOF):
		return d, syntaxProblem(file, text, err)
	}
	d.Readable = true
	if len(node.Content) == 1 && !isNull(node.Content[0]) {
		d.root = node.Content[0]
	}
	return d, nil
}

// unreadable finds the first byte that is no UTF-8 text.
func unreadable(file string, text []byte) *Problem {
	line, column := 1, 1
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return &Problem{File: file, Line: line, Column: column,
				Message: fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", text[i])}
		case r == 0:
			return &Problem{File: file, Line: line, Column: column,
				Message: "a zero byte; save the file as UTF-8 text"}
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		i += size
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntaxProblem places an error of the YAML parser, which names lines only. A
// tab in an indentation is the usual cause and is named before anything else.
func syntaxProblem(file string, text []byte, err error) *Problem {
	lines := strings.Split(string(text), "\n")
	for i, l := range lines {
		indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]
		if at := strings.IndexByte(indent, '\t'); at >= 0 && strings.TrimSpace(l) != "" {
			return &Problem{File: file, Line: i + 1, Column: at + 1,
				Message: "a tab in the indentation; YAML is indented with spaces"}
		}
	}
	line, message := 1, err.Error()
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = min(max(n, 1), len(lines))
		}
	}
	found := strings.TrimRight(lines[line-1], "\r")
	column := 1 + len(found) - len(strings.TrimLeft(found, " "))
	// Only the key is repeated: what follows it may be a secret.
	key, _, _ := strings.Cut(strings.TrimSpace(found), ":")
	return &Problem{File: file, Line: line, Column: column,
		Message: fmt.Sprintf("not YAML: %s, at or after %s", message, quote(key))}
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// quote quotes found text, shortened if it is long.
func quote(s string) string {
	const longest = 60
	if r := []rune(s); len(r) > longest {
		return strconv.Quote(string(r[:longest])) + "…"
	}
	return strconv.Quote(s)
}
