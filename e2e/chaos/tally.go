//go:build linux

package main

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// tally counts by name. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[name]++
}

func (t *tally) of(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

func (t *tally) total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.counts {
		n += c
	}
	return n
}

// names in order: the most frequent first, or by name.
func (t *tally) names(byCount bool) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := slices.Sorted(maps.Keys(t.counts))
	if byCount {
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(t.counts[b], t.counts[a]) })
	}
	return names
}
