package configs

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// From says where an effective value comes from.
type From string

// Where effective values come from.
const (
	FromFile      From = "file"      // it stands in the file
	FromDefault   From = "default"   // the file leaves it out
	FromLegacy    From = "legacy"    // promoted from keys that are marked for removal
	FromInherited From = "inherited" // another key governs it
	FromOverride  From = "override"  // an admin set it on the running Edge
)

// Origin is where an effective value comes from.
type Origin struct {
	From From `json:"from"`
	// Lines of the file that it was taken from, if any.
	Lines []int `json:"lines,omitempty"`
	// Note is more to know: the key that it is inherited from, or what an
	// override stands before.
	Note string `json:"note,omitempty"`
}

// String is for people: "line 12", "default", "legacy, lines 40 and 52".
func (o Origin) String() string {
	var parts []string
	if o.From != FromFile {
		parts = append(parts, string(o.From))
	}
	if o.Note != "" {
		parts[len(parts)-1] += " " + o.Note
	}
	if len(o.Lines) > 0 {
		parts = append(parts, linesText(o.Lines))
	}
	return strings.Join(parts, ", ")
}

func linesText(lines []int) string {
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = strconv.Itoa(l)
	}
	if len(texts) == 1 {
		return "line " + texts[0]
	}
	last := len(texts) - 1
	return "lines " + strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// Value is one value that is in force.
type Value struct {
	Path string `json:"path"`
	// Value is spelt as in the file; "(set)" for a secret.
	Value string `json:"value"`
	Origin

	heads []string // lines before the value's own
	key   string   // the value's own line up to the colon
}

// Effective is a configuration as it is in force, in the order of the file.
type Effective []Value

// Write writes the values in the form of the file, each with where it comes from
// when that is known.
func (e Effective) Write(w io.Writer) error {
	const column = 46 // of the origins
	var out strings.Builder
	for _, v := range e {
		for _, head := range v.heads {
			out.WriteString(head + "\n")
		}
		line := v.key + " " + v.Value
		if v.From != "" {
			line = fmt.Sprintf("%-*s # %s", column, line, v.Origin)
		}
		out.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Origins knows where the values of one file come from.
type Origins struct {
	doc   *Document
	notes map[string]Origin // what the file alone does not tell
}

// Origins are the origins of the document's values.
func (d *Document) Origins() *Origins { return &Origins{doc: d, notes: map[string]Origin{}} }

// Note says that the value at path was taken from elsewhere: from the values at
// the paths named.
func (o *Origins) Note(path string, from From, note string, paths ...string) {
	origin := Origin{From: from, Note: note}
	for _, p := range paths {
		if o.doc.Has(p) {
			line, _ := o.doc.At(p)
			origin.Lines = append(origin.Lines, line)
		}
	}
	o.notes[path] = origin
}

// Fill adds their origins to the values.
func (o *Origins) Fill(values Effective) {
	for i := range values {
		values[i].Origin = o.of(values[i].Path)
	}
}

func (o *Origins) of(path string) Origin {
	if origin, ok := o.notes[path]; ok {
		return origin
	}
	if !o.doc.Has(path) {
		return Origin{From: FromDefault}
	}
	line, _ := o.doc.At(path)
	return Origin{From: FromFile, Lines: []int{line}}
}
