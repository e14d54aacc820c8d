package countmodel

import (
	"strconv"
	"strings"
)

const (
	// numbers is how many numbers the model knows, from 0.
	numbers = 1000
	// hundred is the step at which counting stops.
	hundred = 100
	// loopStart is the first number from which counting never stops.
	loopStart = 801
)

// following is the number after n in an answer; ok is false where the answer
// ends.
func following(n int) (next int, ok bool) {
	switch {
	case n == numbers-1:
		return loopStart, true
	case n >= loopStart:
		return n + 1, true
	case n != 0 && n%hundred == 0:
		return 0, false
	}
	return n + 1, true
}

// Endless reports whether the answer to start never stops by itself.
func Endless(start int) bool { return start >= loopStart && start < numbers }

// Answer is what the model says to a prompt that ends in the number start, a
// space before each number. It gives at most limit numbers, so that the answer
// of an endless start can be asked for too. start must be 0 to 999.
func Answer(start, limit int) string {
	var b strings.Builder
	n := start
	for range limit {
		next, ok := following(n)
		if !ok {
			break
		}
		b.WriteString(" " + strconv.Itoa(next))
		n = next
	}
	return b.String()
}
