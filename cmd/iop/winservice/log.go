package winservice

import (
	"strings"
)

// severity is how the event log sorts what it is told.
type severity int

const (
	information severity = iota
	warning
	failure
)

// severityOf reads the level off a line of the log, in either of its forms. What
// is no line of the log is what the program says of its failure.
func severityOf(line string) severity {
	level := ""
	for _, mark := range []string{"level=", `"level":"`} {
		if _, rest, ok := strings.Cut(line, mark); ok {
			level = rest
			break
		}
	}
	switch {
	case strings.HasPrefix(level, "INFO"), strings.HasPrefix(level, "DEBUG"):
		return information
	case strings.HasPrefix(level, "WARN"):
		return warning
	default:
		return failure
	}
}

// logWriter passes each write, which is one line of the log, on as one event.
type logWriter struct {
	report func(severity, string) error
}

func (w logWriter) Write(line []byte) (int, error) {
	text := strings.TrimRight(string(line), "\r\n")
	if err := w.report(severityOf(text), text); err != nil {
		return 0, err
	}
	return len(line), nil
}
