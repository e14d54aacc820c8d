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

// plainWords are for people who have not read the YAML specification.
var plainWords = map[string]string{
	"mapping values are not allowed in this context":         "no key is expected here; look at the indentation, and for a colon that the line before lacks",
	"could not find expected ':'":                            "a key without a colon and a space after it",
	"did not find expected key":                              "the indentation does not fit the lines above it",
	"did not find expected '-' indicator":                    "the indentation does not fit the list above it",
	"did not find expected ',' or '}'":                       "a { is not closed, or a comma is missing",
	"did not find expected ',' or ']'":                       "a [ is not closed, or a comma is missing",
	"did not find expected node content":                     "a value is missing, or there is a comma or bracket too many",
	"found unexpected end of stream":                         "a quote is not closed",
	"found character that cannot start any token":            "no value may begin with this character; put the value in quotes",
	"block sequence entries are not allowed in this context": "no list is expected here; look at the indentation",
}

// openerOf are the brackets that are not closed, by message.
var openerOf = map[string]string{
	"did not find expected ',' or '}'": "{",
	"did not find expected ',' or ']'": "[",
}

var anchorName = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

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
			if opener, is := openerOf[message]; is {
				// The parser counts the bracket's line from 0; with a bracket
				// on the first line it names another one.
				if line < len(lines) && strings.Contains(lines[line], opener) {
					line++
				} else {
					line = 1
				}
			}
		}
	}
	if m := anchorName.FindStringSubmatch(message); m != nil {
		// The parser does not say on which line.
		for i, l := range lines {
			if strings.Contains(l, "*"+m[1]) {
				line = i + 1
				break
			}
		}
		message = fmt.Sprintf("*%s stands for &%s, which the file does not have; text that begins with * belongs in quotes", m[1], m[1])
	}
	if plain, ok := plainWords[message]; ok {
		if at := openQuote(lines, line); at > 0 && openerOf[message] != "" {
			// The parser took the next quote, wherever it is, for its end.
			line, plain = at, "a quote is not closed"
		}
		message = plain
	}
	found := strings.TrimRight(lines[line-1], "\r")
	column := 1 + len(found) - len(strings.TrimLeft(found, " "))
	// Only the key is repeated: what follows it may be a secret.
	key, _, isKey := strings.Cut(strings.TrimSpace(found), ":")
	if !isKey {
		key, _, _ = strings.Cut(key, `"`)
	}
	return &Problem{File: file, Line: line, Column: column,
		Message: fmt.Sprintf("not YAML at or after %s: %s", quote(key), message)}
}

// openQuote is the first line from the given one on, counted from 1, that has
// an odd number of double quotes; 0 without one. Quotes in comments do not count.
func openQuote(lines []string, from int) int {
	for i := from - 1; i < len(lines); i++ {
		open, escaped := false, false
		for j, c := range lines[i] {
			switch {
			case escaped:
				escaped = false
			case open && c == '\\':
				escaped = true
			case c == '"':
				open = !open
			}
			if c == '#' && !open && (j == 0 || lines[i][j-1] == ' ') {
				break
			}
		}
		if open {
			return i + 1
		}
	}
	return 0
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
