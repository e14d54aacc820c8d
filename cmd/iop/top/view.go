package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/iop-dev/iop/cmd/iop/console"
)

// Colour only repeats what words say; terminals without it, and NO_COLOR, lose
// nothing.
var (
	strong   = lipgloss.NewStyle().Bold(true)
	headings = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Cyan)
	alarming = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Red)
	chosen   = lipgloss.NewStyle().Reverse(true)
)

const (
	keys       = "[enter] explain  [/] filter  [s] sort  [p] pause  [d] drain  [?] help  [q] quit"
	keysShort  = "[enter] explain  [/] filter  [s] sort  [p] pause  [d] drain  [?]  [q]"
	recordKeys = "[esc] back  [up/down] scroll  [r] ask again"
)

var help = []string{
	"up, down, pgup, pgdn   select a line (also k, j; g and G: first, last)",
	"enter                  explain the selected request: its decision record",
	"/                      show only lines with this text; esc shows all again",
	"s                      sort who holds slots by machine, age, model, who",
	"p                      pause: the picture stands still until p again",
	"d                      drain the selected provider or machine, or end that;",
	"                       it asks first, and needs an admin token",
	"q                      quit",
	"",
	"A slot's number is this view's; L marks a long context. EV/S are events of the",
	"answer per second, as counted between updates: what a provider puts into one",
	"is not known. Lines under NEXT are in the order of the queue: number, model,",
	"who, wait, reason, and what will let it go.",
	"",
	"Any key closes this.",
}

// fixed is how many lines are no rows: summary, column heads, two of detail,
// message, keys.
const fixed = 6

// bodyHeight is how many lines rows have.
func (m *Model) bodyHeight() int { return max(1, m.height-fixed) }

// View is tea's.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "iop top: " + console.Clean(m.shown.GetEdgeId())
	return v
}

// screen is every line of the screen, none longer than it is wide.
func (m *Model) screen() []string {
	lines := []string{m.summary()}
	switch {
	case m.help:
		return append(lines, m.sheet(help, 0, "[any key] back")...)
	case m.record != nil:
		return append(lines, m.sheet(m.recordLines(), m.record.scroll, recordKeys)...)
	}
	lines = append(lines, headings.Render(m.heads()))
	body := m.body()
	for i := range m.bodyHeight() {
		if at := m.scroll + i; at < len(body) {
			lines = append(lines, body[at])
		} else {
			lines = append(lines, "")
		}
	}
	lines = append(lines, m.detail()...)
	bar := keys
	if m.width < len(keys) {
		bar = keysShort
	}
	return append(lines, m.prompt(), console.Fit(bar, m.width))
}

// sheet fills the screen below the summary with other lines.
func (m *Model) sheet(text []string, scroll int, keys string) []string {
	lines := []string{""}
	for i := range max(1, m.height-3) {
		if at := scroll + i; at < len(text) {
			lines = append(lines, console.Fit(text[at], m.width))
		} else {
			lines = append(lines, "")
		}
	}
	return append(lines, console.Fit(keys, m.width))
}

// summary is the first line: the state of the connection stands in it.
func (m *Model) summary() string {
	age, stale := m.stale()
	connection := fmt.Sprintf("live %.1fs", age.Seconds())
	if m.paused {
		connection = "PAUSED"
	}
	if stale {
		connection = "STALE " + console.Age(age)
	}
	line := console.Summary(m.shown, connection, m.width)
	if stale {
		return alarming.Render(line)
	}
	return strong.Render(line)
}

func (m *Model) recordLines() []string {
	switch r := m.record; {
	case r.err != nil:
		return console.Wrap(r.err.Error(), m.width, 0)
	case r.found == nil:
		return []string{"asking the Edge …"}
	default:
		return console.Explain(r.found, m.width)
	}
}

// columns are the widths of the six columns, one space apart.
func (m *Model) columns() (label, model, who, state, age, rate int) {
	label, model, who, state, age, rate = 22, 20, 12, 10, 6, 5
	more := m.width - console.Width
	label, model = max(8, label+more*2/5), max(8, model+more*2/5)
	who = max(6, who+more-more*2/5*2)
	return label, model, who, state, age, rate
}

func (m *Model) heads() string {
	return m.machineLine(&row{label: "NODE/SLOT", model: "MODEL", who: "WHO", state: "STATE", age: "AGE", rate: "EV/S"})
}

// name is the first column in so many cells; the slot stays readable.
func (r *row) name(width int) string {
	return console.Pad(console.Fit(r.label, width-cells(r.slot))+r.slot, width)
}

func (m *Model) machineLine(r *row) string {
	label, model, who, state, age, rate := m.columns()
	if r.text != "" {
		return trim(r.name(label)+" "+r.text, m.width)
	}
	return trim(strings.Join([]string{
		r.name(label), console.Pad(r.model, model), console.Pad(r.who, who), console.Pad(r.state, state),
		right(r.age, age), right(r.rate, rate),
	}, " "), m.width)
}

// nextLine is a waiting request: its columns are as wide as they need to be, up to
// a limit, so that there is room for what will let it go.
func (m *Model) nextLine(r *row) string {
	var number, model, who, age, reason int
	for i := range m.next {
		n := &m.next[i]
		number, model, who = max(number, cells(n.label)), max(model, cells(n.model)), max(who, cells(n.who))
		age, reason = max(age, cells(n.age)), max(reason, cells(n.state))
	}
	return trim(strings.Join([]string{
		console.Pad(r.label, number), console.Pad(r.model, min(model, m.width/4)), console.Pad(r.who, min(who, m.width/8)),
		right(r.age, age), console.Pad(r.state, reason), r.text,
	}, " "), m.width)
}

func cells(s string) int { return lipgloss.Width(console.Clean(s)) }

func trim(s string, width int) string { return strings.TrimRight(console.Fit(s, width), " ") }

func right(s string, cells int) string { return fmt.Sprintf("%*s", cells, console.Fit(s, cells)) }

// nextLines are who waits, behind a heading.
func (m *Model) nextLines() []string {
	if len(m.next) == 0 {
		return nil
	}
	lines := []string{"--- NEXT ---"}
	for i := range m.next {
		lines = append(lines, m.nextLine(&m.next[i]))
	}
	if more := int(m.shown.GetQueueTotal()) - len(m.next); more > 0 && m.filter == "" {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// body is all rows as lines, the selected one marked.
func (m *Model) body() []string {
	lines := make([]string, 0, len(m.machines)+len(m.next)+2)
	for i := range m.machines {
		line := m.machineLine(&m.machines[i])
		if m.machines[i].alarm && i != m.index {
			line = alarming.Render(line)
		}
		lines = append(lines, line)
	}
	lines = append(lines, m.nextLines()...)
	switch {
	case len(m.rows()) == 0 && m.filter != "":
		return []string{console.Fit("nothing has "+m.filter+" in it", m.width)}
	case len(m.rows()) == 0:
		return []string{console.Fit("no nodes are configured", m.width)}
	}
	at := m.lineOf(m.index)
	lines[at] = chosen.Render(console.Pad(lines[at], m.width))
	return lines
}

// lineOf is the line of a row in the body: NEXT has a heading.
func (m *Model) lineOf(index int) int {
	if index >= len(m.machines) {
		return index + 1
	}
	return index
}

// detail is what the selected row has no room for, in two lines.
func (m *Model) detail() []string {
	out := []string{"", ""}
	r := m.current()
	var text string
	switch {
	case r == nil:
		return out
	case r.request.GetReason() != "":
		text = r.request.GetReason() + ": " + r.request.GetSentence() + " Next: " + r.request.GetUnblocker()
	case r.request != nil:
		text = fmt.Sprintf("#%d %s on %s/%s", r.request.GetEnqueueSeq(), r.request.GetRequestId(), r.node, r.provider)
	default:
		text = r.label + r.slot + ": " + r.text
	}
	copy(out, console.Wrap(text, m.width, 0))
	return out
}

// prompt is the line for questions, what is typed, and what has happened.
func (m *Model) prompt() string {
	switch {
	case m.ask != nil:
		return strong.Render(console.Fit(m.ask.text, m.width))
	case m.typing:
		return console.Fit("/"+m.filter+"_", m.width)
	case m.message != "":
		return console.Fit(m.message, m.width)
	case m.err != nil:
		return alarming.Render(console.Fit(m.err.Error(), m.width))
	case m.filter != "":
		return console.Fit("only lines with "+m.filter+" ([esc] shows all)", m.width)
	}
	for _, a := range console.Alerts(m.shown) {
		return alarming.Render(console.Fit("! "+a, m.width))
	}
	return ""
}
