package admission

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays testdata/*.txt, one file for each requirement. A file is a
// story: commands, and after each the effects that must follow. Run with
// -rewrite to record the effects anew, and read the difference.
//
//	site                      the configuration, one item a line:
//	  selection priority
//	  pool max=2 timeout=10s          (or: route:tiny max=1 timeout=5s)
//	  resource n1/p capacity=1 long=0 priority=0 disabled drain unhealthy surfaces=chat
//	  group ornith n1/p n2/p scope=pool
//	reconfigure               the same, while requests run and wait
//	connect n1 · disconnect n1 [gen=1] · drain n1
//	enqueue NAME ornith [long] [embeddings]
//	track NAME · release NAME · refuse NAME · cancel NAME
//	wait 3s                   time passes, and what is due expires
//	snapshot · record NAME
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &story{now: time.Unix(1000, 0), names: map[Seq]string{}, seqs: map[string]Seq{}, leases: map[Seq]LeaseID{}, gens: map[NodeID]Generation{}}
			datadriven.RunTest(t, path, s.run)
		})
	}
}

type story struct {
	core   *Core
	now    time.Time
	names  map[Seq]string
	seqs   map[string]Seq
	leases map[Seq]LeaseID // the last lease of each request
	gens   map[NodeID]Generation
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	arg := func(i int) string { return d.CmdArgs[i].Key }
	request := func() (Seq, LeaseID) { return s.seqs[arg(0)], s.leases[s.seqs[arg(0)]] }
	var out string
	switch d.Cmd {
	case "site":
		s.core = New(parseSite(t, d.Input))
	case "reconfigure":
		out = s.tell(s.core.Reconfigure(s.now, parseSite(t, d.Input)), true)
	case "connect":
		gen, effects := s.core.Connect(s.now, NodeID(arg(0)))
		s.gens[NodeID(arg(0))] = gen
		out = fmt.Sprintf("generation %d\n", gen) + s.tell(effects, true)
	case "disconnect":
		gen := s.gens[NodeID(arg(0))]
		var n int
		if d.MaybeScanArgs(t, "gen", &n) {
			gen = Generation(n)
		}
		out = s.tell(s.core.Disconnect(s.now, NodeID(arg(0)), gen))
	case "drain":
		out = s.tell(s.core.Drain(s.now, NodeID(arg(0)), s.gens[NodeID(arg(0))]))
	case "enqueue":
		req := Request{Group: GroupKey(arg(1)), Surface: SurfaceChat}
		for _, a := range d.CmdArgs[2:] {
			switch a.Key {
			case "long":
				req.Class = Long
			case "embeddings":
				req.Surface = SurfaceEmbeddings
			default:
				t.Fatalf("enqueue: %q?", a.Key)
			}
		}
		seq, effects := s.core.Enqueue(s.now, req)
		s.names[seq], s.seqs[arg(0)] = arg(0), seq
		out = s.tell(effects, true)
	case "track":
		out = fmt.Sprintln(s.core.Track(request()))
	case "release":
		seq, lease := request()
		out = s.tell(s.core.Release(s.now, seq, lease))
	case "refuse":
		seq, lease := request()
		out = s.tell(s.core.Refuse(s.now, seq, lease))
	case "cancel":
		out = s.tell(s.core.Cancel(s.now, s.seqs[arg(0)]))
	case "wait":
		by, err := time.ParseDuration(arg(0))
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(by)
		out = s.tell(s.core.Expire(s.now), true)
	case "snapshot":
		out = s.snapshot()
	case "record":
		out = s.record(s.seqs[arg(0)])
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	if err := checkInvariants(s.core); err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return out
}

// tell puts effects into words; done false means that the command was a no-op.
func (s *story) tell(effects []Effect, done bool) string {
	if !done {
		return "nothing: already ended, or not current\n"
	}
	var b strings.Builder
	for _, e := range effects {
		fmt.Fprintf(&b, "%s: ", s.names[e.Seq])
		switch e.Kind {
		case Granted:
			s.leases[e.Seq] = e.Lease
			fmt.Fprintf(&b, "granted %s (generation %d, as %s)\n", e.Resource, e.Gen, e.Target)
		case Queued:
			fmt.Fprintf(&b, "waits (%s) until %s\n", e.Reason, e.Deadline.Sub(time.Unix(1000, 0)))
		case Requeued:
			fmt.Fprintf(&b, "waits again until %s\n", e.Deadline.Sub(time.Unix(1000, 0)))
		case Rejected:
			fmt.Fprintf(&b, "ends: %s (%s)", e.Result, e.Reason)
			if e.RetryAfter > 0 {
				fmt.Fprintf(&b, ", retry after %s", e.RetryAfter)
			}
			b.WriteString("\n")
		case Revoked:
			fmt.Fprintf(&b, "revoked on %s (generation %d)\n", e.Resource, e.Gen)
		}
	}
	return b.String()
}

func (s *story) snapshot() string {
	var b strings.Builder
	snap := s.core.Snapshot(s.now)
	for _, r := range snap.Resources {
		fmt.Fprintf(&b, "%s: in_flight %d/%d long %d/%d queued %d long_queued %d", r.Key, r.InFlight, r.Capacity, r.LongInFlight, r.LongCapacity, r.Queued, r.LongQueued)
		if r.Excluded != ReasonNone {
			fmt.Fprintf(&b, " excluded (%s)", r.Excluded)
		}
		if r.Removed {
			b.WriteString(" removed")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "waiting %d", snap.QueueTotal)
	for reason, n := range snap.WaitingBy {
		if n > 0 {
			fmt.Fprintf(&b, " (%d %s)", n, Reason(reason))
		}
	}
	fmt.Fprintf(&b, ", in flight %d, granted %d, released %d, fenced %d, double %d, stale %d\n", snap.InFlight, snap.Counters.Granted, snap.Counters.Released, snap.Counters.Fenced, snap.Counters.DoubleReleases, snap.Counters.Stale)
	return b.String()
}

func (s *story) record(seq Seq) string {
	r, ok := s.core.Record(seq)
	if !ok {
		return "forgotten\n"
	}
	var b strings.Builder
	at := func(t time.Time) time.Duration { return t.Sub(time.Unix(1000, 0)) }
	verdicts := func(vs []Verdict) {
		for _, v := range vs {
			reason := v.Reason.String()
			if v.Reason == ReasonNone {
				reason = "free"
			}
			fmt.Fprintf(&b, " %s=%s(%d/%d", v.Resource, reason, v.Slots.InFlight, v.Slots.Capacity)
			if v.Slots.LongCapacity > 0 {
				fmt.Fprintf(&b, ",long %d/%d", v.Slots.LongInFlight, v.Slots.LongCapacity)
			}
			b.WriteString(")")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s: seq %d, %s of %s under %s\n", s.names[seq], r.Seq, r.Class, r.Group, r.Scope)
	for i, m := range r.Moments {
		if i == 1 && r.Forgotten > 0 {
			fmt.Fprintf(&b, "  (%d forgotten)\n", r.Forgotten)
		}
		fmt.Fprintf(&b, "  %s %s", at(m.At), m.Kind)
		if m.Kind == AtGrant {
			fmt.Fprintf(&b, " %s", m.Resource)
		}
		if m.Result != 0 {
			fmt.Fprintf(&b, " %s", m.Result)
		}
		if m.Reason != ReasonNone {
			fmt.Fprintf(&b, " (%s)", m.Reason)
		}
		verdicts(m.Verdicts)
	}
	if r.Waiting {
		fmt.Fprintf(&b, "  waits now (%s)", r.Reason)
		verdicts(r.Verdicts)
	}
	return b.String()
}

func parseSite(t testing.TB, text string) (cfg Config) {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("site: %v", err)
		}
		return n
	}
	key := func(s string) ResourceKey {
		n, p, _ := strings.Cut(s, "/")
		return ResourceKey{NodeID(n), ProviderID(p)}
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case words[0] == "selection":
			cfg.Selection = PriorityFirst
		case words[0] == "pool" || strings.HasPrefix(words[0], "route:"):
			sc := Scope{Key: ScopeKey(words[0])}
			for _, w := range words[1:] {
				k, v, _ := strings.Cut(w, "=")
				switch k {
				case "max":
					sc.MaxQueue = number(v)
				case "timeout":
					sc.Timeout, _ = time.ParseDuration(v)
				}
			}
			cfg.Scopes = append(cfg.Scopes, sc)
		case words[0] == "resource":
			r := Resource{Key: key(words[1]), Enabled: true, Surfaces: SurfaceChat | SurfaceEmbeddings}
			for _, w := range words[2:] {
				k, v, _ := strings.Cut(w, "=")
				switch k {
				case "capacity":
					r.Capacity = number(v)
				case "long":
					r.LongCapacity = number(v)
				case "priority":
					r.Priority = number(v)
				case "disabled":
					r.Enabled = false
				case "drain":
					r.Drain = true
				case "unhealthy":
					r.Health = Unhealthy
				case "surfaces":
					r.Surfaces = SurfaceChat
				default:
					t.Fatalf("site: resource: %q?", w)
				}
			}
			cfg.Resources = append(cfg.Resources, r)
		case words[0] == "group":
			g := Group{Key: GroupKey(words[1]), Scope: PoolScope}
			for _, w := range words[2:] {
				if sc, ok := strings.CutPrefix(w, "scope="); ok {
					g.Scope = ScopeKey(sc)
					continue
				}
				g.Candidates = append(g.Candidates, Candidate{key(w), "served-" + words[1]})
			}
			cfg.Groups = append(cfg.Groups, g)
		default:
			t.Fatalf("site: %q?", line)
		}
	}
	return cfg
}
