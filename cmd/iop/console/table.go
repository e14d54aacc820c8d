package console

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// column is one column of a table.
type column struct {
	head  string
	right bool // numbers
	least int  // cells that it can be cut to; 0 = it is never cut
}

// gap is between two columns.
const gap = 2

// row is one line of a table, and what is said below it.
type row struct {
	cells []string
	notes []string
}

// table lays rows out in so many cells: columns that may be cut give way, the
// widest first.
func table(columns []column, rows []row, width int) []string {
	widths := make([]int, len(columns))
	total := gap * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = ansi.StringWidth(c.head)
		for _, r := range rows {
			widths[i] = max(widths[i], ansi.StringWidth(Clean(r.cells[i])))
		}
		total += widths[i]
	}
	for ; total > width; total-- {
		widest := -1
		for i, c := range columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = c.head
	}
	lines := []string{line(columns, widths, heads, width)}
	for _, r := range rows {
		lines = append(lines, line(columns, widths, r.cells, width))
		for _, n := range r.notes {
			lines = append(lines, Wrap(n, width, 2)...)
		}
	}
	return lines
}

func line(columns []column, widths []int, cells []string, width int) string {
	parts := make([]string, len(cells))
	for i, c := range cells {
		if columns[i].right {
			parts[i] = padLeft(c, widths[i])
		} else {
			parts[i] = Pad(c, widths[i])
		}
	}
	return strings.TrimRight(ansi.Truncate(strings.Join(parts, strings.Repeat(" ", gap)), width, "…"), " ")
}
