//go:build linux

package main

import "fmt"

// limit is how many requests a provider may run. A higher value counts from the
// moment the refresh is on its way; a lower one when settle says that its Node
// must have heard of it, which the caller knows. What runs then may go on: only a
// start is judged.
type limit struct {
	// current is the configured value, ceiling the highest that may be in force.
	current, ceiling int
	version          int
}

// set is called before the refresh is sent. It returns the version for settle.
func (l *limit) set(n int) int {
	l.current, l.ceiling = n, max(l.ceiling, n)
	l.version++
	return l.version
}

// settle drops former values, unless the limit has changed again since.
func (l *limit) settle(version int) {
	if version == l.version {
		l.ceiling = l.current
	}
}

func (l *limit) allowed() int { return l.ceiling }

func (l *limit) describe() string {
	return fmt.Sprintf("configured %d, highest that may be in force %d", l.current, l.ceiling)
}
