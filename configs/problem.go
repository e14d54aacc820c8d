package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with a file.
type Problem struct {
	File    string
	Line    int // from 1
	Column  int // from 1, in characters
	Path    string
	Message string // what was found and what is allowed
	// OfKey is true for a problem of the key rather than its value, such as an
	// unknown one; the message then says where the key stands.
	OfKey bool
}

// String is "file:line:column: path: message", without the path where the
// message tells it.
func (p Problem) String() string {
	if p.Path == "" || p.OfKey {
		return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Path, p.Message)
}

// Problems are everything wrong with a file, sorted by place; as an error, one
// line for each. It is never empty when it is returned as an error.
type Problems []Problem

// shownProblems bounds what one file can make a log line, an answer or a snapshot
// hold.
const shownProblems = 200

// Error is one line for each problem, up to shownProblems.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps[:min(len(ps), shownProblems)] {
		lines = append(lines, p.String())
	}
	if more := len(ps) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Sorted returns the problems in the order of their places, without those said
// twice of one place.
func (ps Problems) Sorted() Problems {
	out := slices.Clone(ps)
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(out)
}

// Err is nil when there are no problems, else the sorted problems.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps.Sorted()
}
