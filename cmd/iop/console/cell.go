package console

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Width is what output fits into where no terminal says otherwise.
const Width = 80

// Clean takes out of a name what a terminal would act on: clients choose request
// ids, and providers write error messages.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == 0x200d: // joins the parts of an emoji
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
}

// Fit cuts a text to so many cells, with an ellipsis where something is missing.
func Fit(s string, cells int) string {
	if cells <= 0 {
		return ""
	}
	return ansi.Truncate(Clean(s), cells, "…")
}

// Pad is Fit, filled up with spaces.
func Pad(s string, cells int) string {
	s = Fit(s, cells)
	return s + strings.Repeat(" ", max(0, cells-ansi.StringWidth(s)))
}

// padLeft is Pad for numbers.
func padLeft(s string, cells int) string {
	s = Fit(s, cells)
	return strings.Repeat(" ", max(0, cells-ansi.StringWidth(s))) + s
}

// Wrap breaks a text into lines of so many cells, each behind indent spaces:
// between words, and within one only if it fits no line.
func Wrap(s string, cells, indent int) []string {
	room := max(1, cells-indent)
	var lines []string
	line := ""
	for _, word := range strings.Fields(Clean(s)) {
		if line != "" && ansi.StringWidth(line)+1+ansi.StringWidth(word) <= room {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		pieces := strings.Split(ansi.Hardwrap(word, room, true), "\n")
		lines, line = append(lines, pieces[:len(pieces)-1]...), pieces[len(pieces)-1]
	}
	lines = append(lines, line)
	for i, l := range lines {
		lines[i] = strings.TrimRight(strings.Repeat(" ", indent)+l, " ")
	}
	return lines
}

// Age is a span of time in at most six cells.
func Age(d time.Duration) string {
	switch s := int(max(0, d) / time.Second); {
	case s < 100:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s < 100*24*3600:
		return fmt.Sprintf("%dd%dh", s/3600/24, s/3600%24)
	default:
		return fmt.Sprintf("%dd", s/3600/24)
	}
}

// Span is Age, to the millisecond where that is all there is.
func Span(ms uint64) string {
	switch d := time.Duration(ms) * time.Millisecond; { //nolint:gosec // spans of requests
	case ms < 1000:
		return fmt.Sprintf("%dms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.1fs", float64(ms/100)/10)
	default:
		return Age(d)
	}
}

// Since is the age of a moment in a state of another; "-" without one.
func Since(now, then *timestamppb.Timestamp) string {
	if then == nil {
		return "-"
	}
	return Age(now.AsTime().Sub(then.AsTime()))
}

// orDash is for what may be empty.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural counts things.
func plural[N int | uint32 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
