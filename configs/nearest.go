package configs

import "strings"

// Nearest returns the entry of from that was probably meant by word: the one
// with the fewest typing slips, if they are few for its length. Of equals the
// first wins.
func Nearest(word string, from []string) (string, bool) {
	const longest = 128 // the work is quadratic in the length
	if word == "" || len(word) > longest {
		return "", false
	}
	limit := max(1, len(word)/3)
	best, found := "", false
	for _, w := range from {
		if len(w) > longest || abs(len(w)-len(word)) > limit {
			continue
		}
		if d := slips(strings.ToLower(word), strings.ToLower(w)); d <= limit && (!found || d < limit) {
			best, found, limit = w, true, d
		}
	}
	return best, found
}

// DidYouMean is ` (did you mean "x"?)` or nothing.
func DidYouMean(word string, from []string) string {
	if w, ok := Nearest(word, from); ok {
		return ` (did you mean "` + w + `"?)`
	}
	return ""
}

// slips counts insertions, deletions, replacements and swaps of neighbours
// (optimal string alignment) that turn a into b.
func slips(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
