//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// How far above its state before the faults a process may end: a longer life
// leaves a larger heap and a few more threads, and the Edge keeps up to eight
// spare work streams a Node.
const (
	rssMargin       = 96 << 10 // KiB
	fdMargin        = 8
	threadMargin    = 12
	goroutineMargin = 40
)

func table2() *tabwriter.Writer { return tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0) }

// report prints what was done and what came of it.
func (s *site) report(i *injector, l *load, tormented time.Duration, snapshots int) {
	perHour := float64(i.injected.total()) / tormented.Hours()
	fmt.Printf("\nfaults: %d in %s, %.0f an hour\n", i.injected.total(), tormented.Round(time.Second), perHour)
	w := table2()
	fmt.Fprintln(w, "  injected\tskipped\tclass")
	for _, c := range weights {
		fmt.Fprintf(w, "  %d\t%d\t%s\n", i.injected.of(string(c.class)), i.skipped.of(string(c.class)), c.class)
	}
	_ = w.Flush()
	if perHour < 500 {
		s.verdict.breach("%.0f faults an hour; 500 are wanted", perHour)
	}

	begun, ended := l.begun.Load(), l.ended.Load()
	fmt.Printf("\nrequests: %d begun, %d ended, slowest %s\n", begun, ended, time.Duration(l.slowest.Load()).Round(time.Millisecond))
	if begun != ended || int64(l.outcomes.total()) != ended {
		s.verdict.breach("%d requests began, %d ended, %d outcomes are booked", begun, ended, l.outcomes.total())
	}
	w = table2()
	for _, name := range l.outcomes.names(true) {
		fmt.Fprintf(w, "  %d\t%s\n", l.outcomes.of(name), name)
	}
	fmt.Fprintln(w, "clients:")
	for _, name := range l.kinds.names(true) {
		fmt.Fprintf(w, "  %d\t%s\n", l.kinds.of(name), name)
	}
	_ = w.Flush()

	fmt.Println("\nproviders:")
	w = table2()
	fmt.Fprintln(w, "  provider\ttype\tcapacity\tpeak\tdeaf besides\trequests")
	for _, p := range providers {
		_, total, peak, excused := s.fakes[p.key()].counts()
		fmt.Fprintf(w, "  %s\t%s\t%d\t%d\t%d\t%d\n", p.key(), p.kind, p.capacity, peak, excused, total)
	}
	_ = w.Flush()
	fmt.Println("  (peak: capacities were set from 0 to 4 during the run; each start is judged by what was in force)")
	fmt.Printf("snapshots judged: %d; worst delay of this program itself: %s\n", snapshots, s.lag.max().Round(time.Millisecond))
	s.verdict.mu.Lock()
	for _, name := range sortedKeys(s.verdict.notes) {
		fmt.Printf("noted: %d %s\n", s.verdict.notes[name], name)
	}
	s.verdict.mu.Unlock()
}

// reportResources prints and judges what the processes hold.
func (s *site) reportResources(before, after map[string]resources, creators map[string]map[string]int) {
	fmt.Println("\nresources at rest, before the faults and after:")
	w := table2()
	fmt.Fprintln(w, "  process\tRSS MiB\t\tdescriptors\t\tthreads\t\tgoroutines\t")
	for _, name := range sortedKeys(after) {
		b, a := before[name], after[name]
		fmt.Fprintf(w, "  %s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", name, b.rss>>10, a.rss>>10, b.fds, a.fds, b.threads, a.threads, b.goroutines, a.goroutines)
	}
	_ = w.Flush()
	fmt.Printf("  margins: %d MiB, %d descriptors, %d threads, %d goroutines\n", rssMargin>>10, fdMargin, threadMargin, goroutineMargin)
	for _, name := range sortedKeys(after) {
		b, a := before[name], after[name]
		if a.rss > b.rss+rssMargin || a.fds > b.fds+fdMargin || a.threads > b.threads+threadMargin {
			s.verdict.breach("%s holds more than before the faults: %+v, then %+v", name, b, a)
		}
		if a.goroutines > b.goroutines+goroutineMargin {
			s.verdict.breach("%s has %d goroutines, before the faults %d: %v", name, a.goroutines, b.goroutines, most(creators[name]))
		}
	}
}

// most is the creators of most goroutines.
func most(by map[string]int) (top []string) {
	names := sortedKeys(by)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(by[b], by[a]) })
	for _, n := range names[:min(len(names), 8)] {
		top = append(top, fmt.Sprintf("%d from %s", by[n], n))
	}
	return top
}
