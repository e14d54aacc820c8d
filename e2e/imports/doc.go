// Package imports holds the import directions of docs/architecture.md: which
// folder may depend on which, and why. The rules are data (rules.go), the check
// is a pure function over an import graph (check.go), and the test feeds it the
// module's own graph as `go list` sees it.
//
// depguard in .golangci.yml holds the direct half of the same rules, so that an
// editor shows a breach while it is being typed; this package follows imports
// through any number of packages, which depguard cannot.
//
// It owns the rules and must not know anything about the packages it names
// beyond their paths: it imports none of them.
package imports
