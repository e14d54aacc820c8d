package figure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one figure of the table.
type Row struct {
	What, Value string
	Goal        string // "" = none is set
	Missed      bool
}

// Part measures some figures that belong together.
type Part struct {
	Name    string
	Measure func(context.Context) ([]Row, error)
}

// Print measures the parts whose name matches a pattern and prints their figures.
func Print(ctx context.Context, parts []Part, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tMEASURED\tGOAL\t")
	var failures []error
	for _, part := range parts {
		if !wanted.MatchString(part.Name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s … (load %s)\n", part.Name, load())
		figures, err := part.Measure(ctx)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", part.Name, err))
		}
		for _, f := range figures {
			verdict := ""
			switch {
			case f.Goal == "":
			case f.Missed:
				verdict = "missed"
			default:
				verdict = "met"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.What, f.Value, f.Goal, verdict)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		failures = append(failures, errors.New("interrupted"))
	}
	return errors.Join(failures...)
}

// load is the machine's load average over one minute, as far as it tells.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// Quantile of sorted values, the nearest rank.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(q*float64(len(sorted))+0.9999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Times is a figure of many measurements, which it sorts, with a goal for the
// 99th percentile; 0 = none.
func Times(what string, values []time.Duration, goal time.Duration) Row {
	slices.Sort(values)
	p99 := Quantile(values, 0.99)
	f := Row{What: what, Value: fmt.Sprintf("p50 %v, p99 %v, max %v (n = %d)",
		Round(Quantile(values, 0.5)), Round(p99), Round(values[len(values)-1]), len(values))}
	if goal > 0 {
		f.Goal, f.Missed = fmt.Sprintf("p99 ≤ %v", goal), p99 > goal
	}
	return f
}

// Round is for people to read.
func Round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
