package top

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew from what comes out")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// snapshot is one of the made-up ones that the other commands are tested with.
func snapshot(t *testing.T, name string) *controlv1.EdgeNodeSnapshot {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "console", "testdata", name+".json"))
	require.NoError(t, err)
	s := &controlv1.EdgeNodeSnapshot{}
	require.NoError(t, protojson.Unmarshal(text, s))
	return s
}

func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	text := ansi.Strip(strings.Join(lines, "\n")) + "\n"
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), text)
}

// rig is a view without a terminal.
type rig struct {
	*testing.T
	*Model
	clock   *clockwork.FakeClock
	drained []string
	fail    error
	ending  bool
}

func newRig(t *testing.T, state *controlv1.EdgeNodeSnapshot) *rig {
	r := &rig{T: t, clock: clockwork.NewFakeClock()}
	r.Model = New(r, r.clock, state)
	r.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	return r
}

func (r *rig) Explain(seq uint64) (*controlv1.ExplainRequestResponse, error) {
	x := &controlv1.ExplainRequestResponse{Request: &controlv1.RequestSnapshot{EnqueueSeq: seq, RequestId: "asked", State: "waiting"}}
	if r.ending {
		x.Ending = &controlv1.Ending{EnqueueSeq: seq, Outcome: "completed"}
	}
	return x, r.fail
}

func (r *rig) Drain(node, provider string, reset bool) error {
	word := map[bool]string{false: "drain ", true: "reset "}[reset]
	r.drained = append(r.drained, word+node+"/"+provider)
	return r.fail
}

func (r *rig) Describe(err error) error { return errors.New("described: " + err.Error()) }

// send has the view take a message, and whatever its commands bring at once.
func (r *rig) send(msg tea.Msg) {
	r.Helper()
	_, cmd := r.Update(msg)
	if _, ticked := msg.(tickMsg); !ticked && cmd != nil {
		if next := cmd(); next != nil {
			if _, quit := next.(tea.QuitMsg); !quit {
				r.send(next)
			}
		}
	}
	for _, l := range r.screen() {
		require.LessOrEqual(r, ansi.StringWidth(l), r.width, "%q", l)
	}
	if r.height > fixed {
		require.Len(r, r.screen(), r.height)
	}
}

// press types keys: names of more than one letter, or letters.
func (r *rig) press(keys ...string) {
	r.Helper()
	special := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown,
		"home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace,
	}
	for _, k := range keys {
		if code, ok := special[k]; ok {
			r.send(tea.KeyPressMsg{Code: code})
		} else {
			r.send(tea.KeyPressMsg{Code: []rune(k)[0], Text: k})
		}
	}
}

func (r *rig) text() string { return ansi.Strip(strings.Join(r.screen(), "\n")) }

// marked is the selected line.
func (r *rig) marked() string {
	for _, l := range r.screen() {
		if strings.Contains(l, "\x1b[7m") {
			return strings.TrimSpace(ansi.Strip(l))
		}
	}
	return ""
}

func TestU17_TopPrintsOnceWithoutATerminal(t *testing.T) {
	for _, name := range []string{"busy", "hostile", "idle", "bare"} {
		lines := Once(snapshot(t, name), 80)
		for _, l := range lines {
			require.LessOrEqual(t, ansi.StringWidth(l), 80, "%q", l)
			require.NotContains(t, l, "\x1b")
		}
		golden(t, "once-"+name, lines)
	}
}

func TestTheScreenFitsTheTerminal(t *testing.T) {
	for _, name := range []string{"busy", "hostile", "bare"} {
		r := newRig(t, snapshot(t, name))
		golden(t, "screen-"+name, r.screen())
		for width := 20; width <= 200; width += 45 {
			for _, height := range []int{1, 9, 40} {
				r.send(tea.WindowSizeMsg{Width: width, Height: height})
				r.press("end", "?", "x", "home")
			}
		}
	}
}

// Nothing that comes in moves the selection, or a machine or a request out of its
// place.
func TestU13_UpdatesMoveNothing(t *testing.T) {
	s := snapshot(t, "busy")
	r := newRig(t, s)
	r.press("down", "down")
	require.Regexp(t, `^gpu-box/3L +qwen3-32b +batch`, r.marked())
	next := proto.CloneOf(s)
	next.Requests = append(next.Requests[2:3:3], next.Requests[3:]...) // #1 and #2 have gone
	next.Nodes[0].Providers[0].InFlight = 1
	r.send(Update{State: next})
	require.Regexp(t, `^gpu-box/3L +qwen3-32b +batch`, r.marked())
	require.Contains(t, r.text(), "\ngpu-box/1-2            free")
	again := proto.CloneOf(next)
	again.Requests = append(again.Requests, &controlv1.RequestSnapshot{EnqueueSeq: 99, Client: "new", State: "prefill", Node: "gpu-box", Provider: "vllm"})
	r.send(Update{State: again})
	require.Regexp(t, `(?s)gpu-box/1 +- +new.*gpu-box/2 +free.*gpu-box/3L +qwen3-32b +batch.*studio/1.*nas.*mac-mini.*old-pc`, r.text())
	require.Regexp(t, `^gpu-box/3L`, r.marked())
	// What was selected goes: the selection stays where it was.
	gone := proto.CloneOf(again)
	gone.Requests = gone.Requests[1:]
	r.send(Update{State: gone})
	require.NotEmpty(t, r.marked())
}

func TestU10_OfflineMachinesKeepTheirPlace(t *testing.T) {
	lines := strings.Join(Once(snapshot(t, "busy"), 80), "\n")
	require.Regexp(t, `(?s)studio/2 +free: No waiting.*\nnas +DRAINING for 30s, by me\nnas/1.*\nmac-mini +OFFLINE for 12s, last seen 27s ago; 2 slots out\nold-pc +OFFLINE, not seen`, lines)
}

func TestU12_AnEdgeThatIsSilentIsStaleWithin3Seconds(t *testing.T) {
	s := snapshot(t, "busy")
	r := newRig(t, s)
	r.clock.Advance(200 * time.Millisecond)
	require.Contains(t, r.text(), "live 0.2s")
	r.clock.Advance(3 * time.Second)
	require.Contains(t, r.text(), "STALE 3s")
	require.Contains(t, r.text(), "gpu-box/1", "what was last known stays")
	r.send(Update{Err: errors.New("connection refused")})
	require.Contains(t, r.text(), "described: connection refused")
	// The Edge is back, as another process: numbers start again.
	back := proto.CloneOf(s)
	back.InstanceId, back.Requests = "i2", back.Requests[1:2]
	r.send(Update{State: back})
	require.Contains(t, r.text(), "live 0.0s")
	require.NotContains(t, r.text(), "refused")
	require.Regexp(t, `\ngpu-box/1 +qwen3-32b +ci`, r.text())
}

func TestAPausedViewStandsStill(t *testing.T) {
	s := snapshot(t, "busy")
	r := newRig(t, s)
	r.press("p")
	next := proto.CloneOf(s)
	next.QueueTotal, next.Requests = 0, nil
	r.send(Update{State: next})
	require.Contains(t, r.text(), "PAUSED")
	require.Contains(t, r.text(), "gpu-box/1 ")
	r.clock.Advance(time.Minute)
	require.Contains(t, r.text(), "STALE")
	r.press("p")
	require.Contains(t, r.text(), "wait 0")
	require.NotContains(t, r.text(), "--- NEXT ---")
}

// Events per second come from two counts, or are not told.
func TestRatesAreCountedNeverInvented(t *testing.T) {
	s := snapshot(t, "busy")
	r := newRig(t, s)
	rate := func() string { return r.rates.of(r.shown.GetRequests()[0]) }
	require.Equal(t, "-", rate())
	at := func(after time.Duration, parts uint64) {
		s = proto.CloneOf(s)
		s.At = timestamppb.New(s.GetAt().AsTime().Add(after))
		s.Requests[0].AnswerParts = parts
		r.send(Update{State: s})
	}
	at(200*time.Millisecond, 710)
	require.Equal(t, "-", rate(), "too soon to tell")
	at(800*time.Millisecond, 742)
	require.Equal(t, "42", rate())
	require.Regexp(t, `gpu-box/1 +qwen3-32b +laptop +streaming +19s +42\n`, r.text())
	at(time.Second, 742)
	require.Equal(t, "42", rate(), "growth is told once a second")
	at(2*time.Second, 742)
	require.Equal(t, "0.0", rate())
	require.Equal(t, "-", r.rates.of(r.shown.GetRequests()[1]), "nothing has come back yet")
	at(time.Second, 3) // another request of that number
	require.Equal(t, "-", rate())
}

func TestU07_EnterExplainsTheSelectedRequest(t *testing.T) {
	r := newRig(t, snapshot(t, "busy"))
	r.press("enter")
	require.Contains(t, r.text(), "#1  asked  waiting")
	require.Contains(t, r.text(), "[esc] back")
	r.press("down", "pgdown", "end", "pgup", "home", "up")
	require.Zero(t, r.record.scroll)
	// It is asked for again while the request is live.
	require.Nil(t, r.askAgain())
	r.clock.Advance(explainPace)
	r.ending = true
	r.send(r.askAgain()())
	require.Contains(t, r.text(), "completed")
	r.clock.Advance(explainPace)
	require.Nil(t, r.askAgain(), "it has ended")
	r.fail = errors.New("the Edge is away")
	r.press("r")
	require.Contains(t, r.text(), "the Edge is away")
	r.press("esc")
	require.Contains(t, r.text(), "NODE/SLOT")
	// A free slot is none.
	r.press("down", "down", "down", "down", "enter")
	require.Contains(t, r.text(), "select a request to explain")
	// A late answer for a record that was closed.
	r.send(explainedMsg{seq: 1})
	require.Nil(t, r.record)
}

// The lines below tell what the selected row has no room for.
func TestU06_TheSelectedWaiterTellsAll(t *testing.T) {
	s := snapshot(t, "busy")
	r := newRig(t, s)
	r.press("end", "up")
	w := s.GetRequests()[6]
	require.Contains(t, strings.Join(strings.Fields(r.text()), " "), w.GetReason()+": "+w.GetSentence()+" Next: "+w.GetUnblocker())
}

func TestDrainingIsConfirmed(t *testing.T) {
	r := newRig(t, snapshot(t, "busy"))
	r.press("d")
	require.Contains(t, r.text(), "Drain gpu-box/vllm: nothing new, what runs goes on? [y/N]")
	r.press("n")
	require.Empty(t, r.drained)
	require.Contains(t, r.text(), "nothing was done")
	r.press("d", "y")
	require.Equal(t, []string{"drain gpu-box/vllm"}, r.drained)
	require.Contains(t, r.text(), "gpu-box/vllm: draining")
	r.press("/", "n", "a", "s", "enter", "home", "d")
	require.Contains(t, r.text(), "Let the file decide about nas again? [y/N]")
	r.fail = errors.New("refuses the token")
	r.press("y")
	require.Equal(t, "reset nas/", r.drained[1])
	require.Contains(t, r.text(), "refuses the token")
	r.press("esc", "end", "d")
	require.Contains(t, r.text(), "select a slot or a machine to drain")
}

func TestFilterAndSort(t *testing.T) {
	r := newRig(t, snapshot(t, "busy"))
	r.press("/", "B", "a", "t", "c", "x", "backspace")
	require.Contains(t, r.text(), "/Batc_")
	require.NotContains(t, r.text(), "studio")
	require.Contains(t, r.text(), "gpu-box/3L")
	r.press("h", "9")
	require.Contains(t, r.text(), "nothing has Batch9 in it")
	r.press("enter", "down", "esc")
	require.Contains(t, r.text(), "studio/1")
	r.press("s")
	require.Contains(t, r.text(), "sorted by age")
	require.Regexp(t, `(?s)nas/1 .*gpu-box/3L .*gpu-box/1 .*studio/1 .*gpu-box/2 .*studio/2`, r.text())
	r.press("s")
	require.Regexp(t, `(?s)studio/1 .*nas/1 .*gpu-box/1 `, r.text())
	r.press("s")
	require.Regexp(t, `(?s)batch .*ci .*laptop .*phone `, r.text())
	r.press("s")
	require.Contains(t, r.text(), "sorted by machine")
	r.press("/", "x", "esc")
	require.Empty(t, r.filter)
}

func TestASmallScreenScrolls(t *testing.T) {
	r := newRig(t, snapshot(t, "busy"))
	r.send(tea.WindowSizeMsg{Width: 80, Height: 10})
	require.Contains(t, r.text(), "gpu-box/1")
	r.press("end")
	require.Contains(t, r.text(), "#8")
	require.NotContains(t, r.text(), "gpu-box/1 ")
	r.press("up", "up")
	require.Regexp(t, `^#6`, r.marked())
	r.press("pgup", "pgup", "pgup", "pgup")
	require.Regexp(t, `^gpu-box/1`, r.marked())
	r.press("pgdown", "j", "k", "g")
	require.Regexp(t, `^gpu-box/1`, r.marked())
}

func TestKeysQuit(t *testing.T) {
	r := newRig(t, snapshot(t, "bare"))
	r.press("down", "enter", "d", "q")
	for _, k := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := r.Update(k)
		require.Equal(t, tea.Quit(), cmd())
	}
	require.NotNil(t, r.Init())
	require.True(t, r.View().AltScreen)
}
