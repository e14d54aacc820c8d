package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/cmd/iop/console"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	// pace is how often the view looks at the clock.
	pace = 500 * time.Millisecond
	// staleAfter is when the state counts as stale: the Edge says something every
	// second.
	staleAfter = 3 * time.Second
	// explainPace is how often an open record of a live request is asked for again.
	explainPace = 2 * time.Second
)

// Edge is what the view asks of an Edge. Its methods are called on goroutines of
// their own, and their errors are shown as they are.
type Edge interface {
	Explain(seq uint64) (*controlv1.ExplainRequestResponse, error)
	// Drain has a provider, or with provider empty a node, take nothing new; with
	// reset it lets the file decide again.
	Drain(node, provider string, reset bool) error
	// Describe says what is wrong with a watch.
	Describe(error) error
}

type tickMsg struct{}

// explainedMsg is the record of a request.
type explainedMsg struct {
	seq    uint64
	record *controlv1.ExplainRequestResponse
	err    error
}

// doneMsg is the end of an order.
type doneMsg struct {
	what string
	err  error
}

// question is an order that is to be confirmed.
type question struct {
	text string
	do   tea.Cmd
}

// order is what rows are sorted by.
type order int

const (
	byMachine order = iota
	byAge
	byModel
	byWho
	orders
)

func (o order) String() string { return [...]string{"machine", "age", "model", "who"}[o] }

// Model is the view. Everything happens in Update; the goroutine of the program
// owns it.
type Model struct {
	edge  Edge
	clock clockwork.Clock

	width, height int

	latest *controlv1.EdgeNodeSnapshot
	at     time.Time // when it came
	err    error     // why nothing comes; nil = it does
	shown  *controlv1.EdgeNodeSnapshot
	paused bool
	held   slots
	rates  rates

	machines, next []row // as shown
	selected       string
	index          int // of the selected row
	scroll         int

	sort    order
	filter  string
	typing  bool
	ask     *question
	message string
	help    bool

	record *record // the open record of a request; nil = none
}

// record is an open record of a request.
type record struct {
	seq    uint64
	asked  time.Time
	found  *controlv1.ExplainRequestResponse
	err    error
	scroll int
}

// New is a view of a state.
func New(edge Edge, clock clockwork.Clock, state *controlv1.EdgeNodeSnapshot) *Model {
	m := &Model{edge: edge, clock: clock, width: console.Width, height: 24, held: slots{}}
	m.take(Update{State: state})
	return m
}

// Once is the view without a terminal: the whole of one state.
func Once(state *controlv1.EdgeNodeSnapshot, width int) []string {
	m := &Model{width: width, held: slots{}, shown: state}
	m.rates.update(state)
	m.arrange()
	lines := append([]string{console.Summary(state, "", width)}, m.heads())
	for i := range m.machines {
		lines = append(lines, m.machineLine(&m.machines[i]))
	}
	return append(lines, m.nextLines()...)
}

// Init starts the clock.
func (m *Model) Init() tea.Cmd { return tick() }

func tick() tea.Cmd { return tea.Tick(pace, func(time.Time) tea.Msg { return tickMsg{} }) }

// Update is tea's.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tickMsg:
		return m, tea.Batch(tick(), m.askAgain())
	case Update:
		m.take(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.follow()
	case explainedMsg:
		if m.record != nil && m.record.seq == msg.seq {
			m.record.found, m.record.err = cmp.Or(msg.record, m.record.found), msg.err
		}
	case doneMsg:
		m.message = msg.what
		if msg.err != nil {
			m.message = msg.err.Error()
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// take makes an update the latest state.
func (m *Model) take(u Update) {
	if u.State == nil {
		m.err = m.edge.Describe(u.Err)
		return
	}
	if m.latest != nil && m.latest.GetInstanceId() != u.State.GetInstanceId() {
		m.held, m.rates = slots{}, rates{} // numbers of another process
	}
	m.latest, m.at, m.err = u.State, m.clock.Now(), nil
	m.rates.update(u.State)
	if !m.paused {
		m.shown = u.State
		m.arrange()
	}
}

// stale reports whether the Edge has been silent for too long, and for how long.
func (m *Model) stale() (time.Duration, bool) {
	age := m.clock.Now().Sub(m.at)
	return age, age > staleAfter || m.err != nil
}

// arrange makes the rows of the state that is shown.
func (m *Model) arrange() {
	m.held.forget(m.shown)
	m.machines = slices.DeleteFunc(machineRows(m.shown, m.held, &m.rates), func(r row) bool { return !r.matches(m.filter) })
	m.next = slices.DeleteFunc(nextRows(m.shown), func(r row) bool { return !r.matches(m.filter) })
	if m.sort != byMachine {
		slices.SortStableFunc(m.machines, m.compare)
	}
	m.follow()
}

// compare puts who holds a slot first, in the order that was asked for.
func (m *Model) compare(a, b row) int {
	if (a.request == nil) != (b.request == nil) {
		if a.request == nil {
			return 1
		}
		return -1
	}
	switch m.sort {
	case byAge:
		return a.request.GetGrantedAt().AsTime().Compare(b.request.GetGrantedAt().AsTime())
	case byModel:
		return cmp.Compare(a.model, b.model)
	default:
		return cmp.Compare(a.who, b.who)
	}
}

// rows are all that can be selected.
func (m *Model) rows() []row { return append(slices.Clip(m.machines), m.next...) }

// follow keeps the selection on the row that it is on, and on the screen.
func (m *Model) follow() {
	rows := m.rows()
	if i := slices.IndexFunc(rows, func(r row) bool { return r.key == m.selected }); i >= 0 && m.selected != "" {
		m.index = i
	}
	m.index = max(0, min(m.index, len(rows)-1))
	if len(rows) > 0 {
		m.selected = rows[m.index].key
	}
	line := m.lineOf(m.index)
	m.scroll = max(0, min(m.scroll, line), line-m.bodyHeight()+1)
	if m.index == 0 {
		m.scroll = 0
	}
}

// move selects another row.
func (m *Model) move(by int) {
	rows := m.rows()
	if len(rows) == 0 {
		return
	}
	m.index = max(0, min(m.index+by, len(rows)-1))
	m.selected = rows[m.index].key
	m.follow()
}

// current is the selected row; nil without rows.
func (m *Model) current() *row {
	if rows := m.rows(); m.index < len(rows) {
		return &rows[m.index]
	}
	return nil
}

func (m *Model) explain(seq uint64) tea.Cmd {
	return func() tea.Msg {
		x, err := m.edge.Explain(seq)
		return explainedMsg{seq, x, err}
	}
}

// askAgain asks for an open record anew, while the request is live.
func (m *Model) askAgain() tea.Cmd {
	r := m.record
	if r == nil || r.err != nil || r.found.GetEnding() != nil || m.clock.Now().Sub(r.asked) < explainPace {
		return nil
	}
	r.asked = m.clock.Now()
	return m.explain(r.seq)
}

// drain asks whether the selected provider or node is to take nothing new, or, if
// an operator's word stands there, whether that is to end.
func (m *Model) drain(r *row) {
	if r == nil || r.node == "" {
		m.message = "select a slot or a machine to drain"
		return
	}
	name, reset := r.node, false
	for _, n := range m.shown.GetNodes() {
		if n.GetId() == r.node && r.provider == "" {
			reset = n.GetOverride() != nil
		}
		for _, p := range n.GetProviders() {
			if n.GetId() == r.node && p.GetId() == r.provider {
				name, reset = r.node+"/"+r.provider, p.GetOverride() != nil
			}
		}
	}
	text, done := fmt.Sprintf("Drain %s: nothing new, what runs goes on? [y/N]", name), name+": draining"
	if reset {
		text, done = fmt.Sprintf("Let the file decide about %s again? [y/N]", name), name+": as the file says"
	}
	node, provider := r.node, r.provider
	m.ask = &question{text, func() tea.Msg { return doneMsg{done, m.edge.Drain(node, provider, reset)} }}
}
