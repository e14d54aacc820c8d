package top

import (
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// press is what a key does; it depends on what is open.
func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	if key == "ctrl+c" {
		return tea.Quit
	}
	switch {
	case m.ask != nil:
		return m.answer(key)
	case m.typing:
		m.typed(key, msg.Text)
		return nil
	case m.help:
		m.help = false
		return nil
	case m.record != nil:
		return m.pressRecord(key)
	}
	m.message = ""
	switch key {
	case "q":
		return tea.Quit
	case "?", "h":
		m.help = true
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.bodyHeight())
	case "pgdown":
		m.move(m.bodyHeight())
	case "home", "g":
		m.move(-len(m.rows()))
	case "end", "G":
		m.move(len(m.rows()))
	case "p", "space":
		m.paused = !m.paused
		m.shown = m.latest
		m.arrange()
	case "s":
		m.sort = (m.sort + 1) % orders
		m.message = "sorted by " + m.sort.String()
		m.arrange()
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
		m.arrange()
	case "d":
		m.drain(m.current())
	case "enter":
		r := m.current()
		if r == nil || r.request == nil {
			m.message = "select a request to explain"
			return nil
		}
		m.record = &record{seq: r.request.GetEnqueueSeq(), asked: m.clock.Now()}
		return m.explain(m.record.seq)
	}
	return nil
}

// answer takes the answer to a question; all but yes is no.
func (m *Model) answer(key string) tea.Cmd {
	do := m.ask.do
	m.ask = nil
	if key != "y" && key != "Y" {
		m.message = "nothing was done"
		return nil
	}
	m.message = "asking the Edge …"
	return do
}

// typed edits the filter.
func (m *Model) typed(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	default:
		m.filter += text
	}
	m.arrange()
}

func (m *Model) pressRecord(key string) tea.Cmd {
	r := m.record
	page := max(1, m.height-3)
	switch key {
	case "esc", "q", "enter":
		m.record = nil
		return nil
	case "up", "k":
		r.scroll--
	case "down", "j":
		r.scroll++
	case "pgup":
		r.scroll -= page
	case "pgdown", "space":
		r.scroll += page
	case "home", "g":
		r.scroll = 0
	case "end", "G":
		r.scroll = len(m.recordLines())
	case "r":
		r.asked, r.err = m.clock.Now(), nil
		return m.explain(r.seq)
	}
	r.scroll = max(0, min(r.scroll, len(m.recordLines())-page))
	return nil
}
