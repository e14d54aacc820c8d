package imports

import (
	"fmt"
	"slices"
	"strings"
)

// Graph maps an import path to its direct imports. Paths of this module are
// relative to it ("edge/broker"); all others are as written ("net/http").
type Graph map[string][]string

// Rule is one direction that imports must not take.
type Rule struct {
	// From selects the packages that the rule binds, by pattern.
	From []string
	// FromExcept selects packages that it does not bind after all.
	FromExcept []string
	// Ban selects what they must not import, by pattern.
	Ban []string
	// BanExcept selects imports that are allowed after all.
	BanExcept []string
	// Direct limits the rule to direct imports; otherwise a chain of imports of
	// any length breaks it.
	Direct bool
	// Through selects packages behind which a chain is not followed: they are
	// allowed to import what is banned, and hide it from their importers.
	Through []string
	// Reason says why, for whoever breaks the rule.
	Reason string
}

// Breach is one broken rule.
type Breach struct {
	Rule Rule
	// Chain leads from the bound package to the banned import, both included.
	Chain []string
}

// String says what is wrong, by which chain, and why it matters.
func (b Breach) String() string {
	return fmt.Sprintf("%s must not import %s: %s\n\tchain: %s",
		b.Chain[0], b.Chain[len(b.Chain)-1], b.Rule.Reason, strings.Join(b.Chain, " -> "))
}

// Check returns every breach of the rules in g: for each rule, bound package
// and banned import the shortest chain, in the order of the rules, then by path.
func Check(g Graph, rules []Rule) []Breach {
	from := make([]string, 0, len(g))
	for path := range g {
		from = append(from, path)
	}
	slices.Sort(from)

	var breaches []Breach
	for _, rule := range rules {
		for _, path := range from {
			if matches(path, rule.From) && !matches(path, rule.FromExcept) {
				breaches = append(breaches, rule.breaches(g, path)...)
			}
		}
	}
	return breaches
}

// breaches walks the graph breadth first from one bound package, so that the
// first chain found to an import is a shortest one.
func (r Rule) breaches(g Graph, from string) []Breach {
	var found []Breach
	parent := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		imports := slices.Sorted(slices.Values(g[at]))
		for _, to := range imports {
			if _, seen := parent[to]; seen {
				continue
			}
			parent[to] = at
			if matches(to, r.Ban) && !matches(to, r.BanExcept) {
				found = append(found, Breach{Rule: r, Chain: chain(parent, to)})
				continue
			}
			if !r.Direct && !matches(to, r.Through) {
				queue = append(queue, to)
			}
		}
	}
	return found
}

func chain(parent map[string]string, to string) []string {
	var c []string
	for at := to; at != ""; at = parent[at] {
		c = append(c, at)
	}
	slices.Reverse(c)
	return c
}

// matches reports whether path is one of the patterns: "a/b" is that package
// alone, "a/b/..." is it and everything below it, "..." is everything.
func matches(path string, patterns []string) bool {
	for _, p := range patterns {
		prefix, below := strings.CutSuffix(p, "...")
		switch {
		case !below && path == p,
			below && prefix == "",
			below && (strings.HasPrefix(path, prefix) || path == strings.TrimSuffix(prefix, "/")):
			return true
		}
	}
	return false
}
