package console_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/cmd/iop/console"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew from what comes out")

func read[M proto.Message](t *testing.T, name string, m M) M {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	require.NoError(t, protojson.Unmarshal(text, m))
	return m
}

func snapshot(t *testing.T, name string) *controlv1.EdgeNodeSnapshot {
	return read(t, name, &controlv1.EdgeNodeSnapshot{})
}

// golden holds lines against testdata, and to what every output keeps to: no line
// is wider than width, and nothing in it is an order to a terminal.
func golden(t *testing.T, name string, lines []string, width int) {
	t.Helper()
	for _, l := range lines {
		require.LessOrEqual(t, ansi.StringWidth(l), width, "%q", l)
		require.Equal(t, console.Clean(l), l)
		require.Equal(t, strings.TrimRight(l, " "), l)
	}
	text := []byte(strings.Join(lines, "\n") + "\n")
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))), string(text))
}

func TestU17_OutputsFit80Columns(t *testing.T) {
	for _, name := range []string{"busy", "hostile", "idle", "bare"} {
		s := snapshot(t, name)
		golden(t, "status-"+name, console.Status(s, 80), 80)
		golden(t, "requests-"+name, console.Requests(s, 80), 80)
		golden(t, "ended-"+name, console.Endings(s, 80), 80)
	}
	for _, name := range []string{"finished", "waiting", "running", "refused", "hostile"} {
		golden(t, "explain-"+name, console.Explain(read(t, "explain-"+name, &controlv1.ExplainRequestResponse{}), 80), 80)
	}
}

func TestU17_OutputsUseTheRoomThatThereIs(t *testing.T) {
	for width := 40; width <= 200; width += 7 {
		s := snapshot(t, "hostile")
		all := append(append(console.Status(s, width), console.Requests(s, width)...), console.Endings(s, width)...)
		all = append(all, console.Explain(read(t, "explain-hostile", &controlv1.ExplainRequestResponse{}), width)...)
		for _, l := range all {
			require.LessOrEqual(t, ansi.StringWidth(l), width, "%q", l)
		}
	}
	wide := strings.Join(console.Requests(snapshot(t, "hostile"), 600), "\n")
	require.Contains(t, wide, "deepseek-r1:671b-0528-q4_K_M-非常に長いモデル名 (long)")
}

// Each waiting request has one reason code, the sentence and what lets it go, in
// the words of the message.
func TestU06_EachWaiterHasItsReasonSentenceAndUnblocker(t *testing.T) {
	s := snapshot(t, "busy")
	for _, text := range []string{
		strings.Join(console.Status(s, 300), "\n"), strings.Join(console.Requests(s, 300), "\n"),
	} {
		for _, r := range s.GetRequests() {
			if r.GetState() == "waiting" {
				require.Contains(t, text, r.GetSentence()+" Next: "+r.GetUnblocker())
				require.Regexp(t, r.GetRequestId()+` .* `+r.GetReason()+"\n", text)
			}
		}
	}
}

func TestU08_AFreeSlotBesideAQueueSaysWhy(t *testing.T) {
	text := strings.Join(console.Status(snapshot(t, "busy"), 80), "\n")
	require.Contains(t, text, "\n  free: No waiting request fits: 3 for models it does not serve.\n")
}

// An override explains no other reason than its own.
func TestU08_AnEnabledProviderThatTakesNothingSaysWhy(t *testing.T) {
	n := &controlv1.NodeSnapshot{Id: "n", Connected: true}
	p := &controlv1.ProviderSnapshot{
		Id: "p", Status: "unavailable", ExcludedReason: "unhealthy", ExcludedSentence: "It is configured as unhealthy.",
		Override: &controlv1.Override{Mode: "enabled", By: "me"},
	}
	s := &controlv1.EdgeNodeSnapshot{Nodes: []*controlv1.NodeSnapshot{n}}
	require.Equal(t, []string{"ENABLED for -, by me", "unhealthy: It is configured as unhealthy."}, console.ProviderNotes(s, n, p))
	p.Override.Mode, p.ExcludedReason, p.ExcludedSentence = "disabled", "disabled", "It is switched off."
	require.Equal(t, []string{"DISABLED for -, by me"}, console.ProviderNotes(s, n, p))
}

// A request whose node was lost did not wait at its end.
func TestU07_AnEndIsNoWait(t *testing.T) {
	lines := console.Explain(&controlv1.ExplainRequestResponse{
		Request: &controlv1.RequestSnapshot{RequestId: "r", EnqueueSeq: 1},
		Ending:  &controlv1.Ending{EnqueueSeq: 1, Outcome: "provider_disconnected"},
		Moments: []*controlv1.DecisionMoment{{Kind: "grant", Node: "n", Provider: "p"}, {Kind: "end", Reason: "offline"}},
	}, 80)
	require.Equal(t, "+0ms      end: offline", lines[len(lines)-1])
}

// What runs, on whatever provider, and the slots, add up in one line.
func TestU09_TheSummaryAddsUp(t *testing.T) {
	s := snapshot(t, "busy")
	require.Equal(t, "home-edge  slots 4/5 +1 ending  long 1/1  wait 3 (oldest 41s)  p95 38s", console.Summary(s, "", 80))
	require.Equal(t, uint32(5), s.GetInFlightTotal())
	require.Equal(t, "home-e…  STALE 4s  slots 4/5 +1 ending  long 1/1  wait 3 (oldest 41s)  p95 38s", console.Summary(s, "STALE 4s", 78))
	s.InFlightTotal = 0 // never below zero
	require.NotContains(t, console.Summary(s, "", 80), "ending")
}

func TestU10_LateAndOfflineMachinesKeepTheirPlaceAndSaySince(t *testing.T) {
	text := strings.Join(console.Status(snapshot(t, "busy"), 80), "\n")
	require.Regexp(t, `(?s)gpu-box/vllm.*studio/mlx.*nas/ollama.*mac-mini/ollama.*old-pc/llama`, text)
	require.Contains(t, text, "\n  OFFLINE for 12s, last seen 27s ago; 2 slots out\n")
	require.Contains(t, text, "\n  OFFLINE, not seen since the Edge started; 1 slot out\n")
	require.Contains(t, text, "\n  DRAINING for 30s, by me\n")
	late := strings.Join(console.Status(snapshot(t, "hostile"), 80), "\n")
	require.Contains(t, late, "\n  LATE: last seen 9s ago\n")
}

func TestU11_WaitsAreMeasuredOrUnknown(t *testing.T) {
	require.Contains(t, console.Status(snapshot(t, "idle"), 80)[0], "p95 unknown")
	require.Contains(t, console.Status(snapshot(t, "busy"), 80)[0], "p95 38s")
}

func TestU19_ARefusedFileIsSaidInStatus(t *testing.T) {
	text := strings.Join(console.Status(snapshot(t, "hostile"), 300), "\n")
	require.Contains(t, text, `! the last reading of the configuration was refused, revision 1048576 stays in force: /etc/iop/環境/edge.yaml:14:7: `)
}

func TestCleanTakesOrdersToTheTerminalOut(t *testing.T) {
	require.Equal(t, "[31mred[0m a b", console.Clean("\x1b[31mred\x1b[0m\ta\nb\u202e\u200b\x07\u009b"))
	require.Equal(t, "👩‍👧 日本", console.Clean("👩‍👧 日本"))
	require.Equal(t, "日…", console.Fit("日本語", 4))
	require.Empty(t, console.Fit("x", 0))
	require.Equal(t, []string{"  a bc", "  def", "  日本", "  語x"}, console.Wrap("a bc def 日本語x", 7, 2))
	require.Equal(t, []string{""}, console.Wrap(" ", 7, 2))
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 99 * time.Second: "99s", 100 * time.Second: "1m40s", time.Hour: "1h00m", 26 * time.Hour: "1d2h",
		99*24*time.Hour + 23*time.Hour: "99d23h", 1000 * 24 * time.Hour: "1000d",
	} {
		require.Equal(t, want, console.Age(d))
		require.LessOrEqual(t, len(want), 6)
	}
	for ms, want := range map[uint64]string{0: "0ms", 999: "999ms", 1000: "1.0s", 9999: "9.9s", 10_000: "10s"} {
		require.Equal(t, want, console.Span(ms))
	}
}

// What is wrong with kept credentials is an alert of the status.
func TestTroubleWithCredentialsIsAnAlert(t *testing.T) {
	require.Equal(t, []string{"kept credentials: none of them passes"}, console.Alerts(&controlv1.EdgeNodeSnapshot{CredentialsProblem: "none of them passes"}))
}
