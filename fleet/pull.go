package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/protobuf/reflect/protoreflect"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	// jitter is the part of the interval by which a pull comes earlier or later.
	jitter = 0.1
	// longestPause bounds the back-off where the interval does not: an Edge that is
	// back is seen again within it.
	longestPause = 10 * time.Second
	// clockTolerance is what two clocks may differ by without notice, beside what a
	// pull takes.
	clockTolerance = 5 * time.Second
)

// pullAlways reads an Edge again and again until ctx ends. The first pulls of many
// Edges are spread over one interval.
func (f *Fleet) pullAlways(ctx context.Context, e *edge) {
	timer := f.o.Clock.NewTimer(time.Duration(f.o.Chance() * float64(min(f.o.Interval, time.Second))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.Chan():
		}
		began := f.o.Clock.Now()
		failures := f.pull(ctx, e)
		timer.Reset(max(0, f.pause(failures)-f.o.Clock.Since(began)))
	}
}

// pause is from the begin of a pull to that of the next: the interval, and after
// the second failure in a row twice as long each time, up to a limit.
func (f *Fleet) pause(failures int) time.Duration {
	pause := f.o.Interval
	for limit := max(f.o.Interval, longestPause); failures > 1 && pause < limit; failures-- {
		pause = min(2*pause, limit)
	}
	return time.Duration(float64(pause) * (1 - jitter + 2*jitter*f.o.Chance()))
}

// pull reads an Edge once and returns how many pulls have failed in a row.
func (f *Fleet) pull(ctx context.Context, e *edge) int {
	began := f.o.Clock.Now()
	limited, cancel := clockwork.WithTimeout(ctx, f.o.Clock, f.o.Timeout)
	snapshot, err := e.reader.Snapshot(limited)
	cancel()
	if err == nil && snapshot == nil {
		err = errors.New("the Edge answered without a snapshot")
	}
	if ctx.Err() != nil {
		return 0
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", f.o.Timeout)
	}
	took := f.o.Clock.Since(began)
	e.mu.Lock()
	before, known := e.failures, e.snapshot != nil
	e.pulls++
	if err != nil {
		e.failures++
		e.lastError = err.Error()
	} else {
		e.snapshot, e.at, e.took = snapshot, began, took
		e.failures, e.lastError = 0, ""
		e.notices = f.noticesOf(e, snapshot, began, took)
		e.samples.see(snapshot)
	}
	after := e.failures
	e.mu.Unlock()
	switch {
	case after == 0 && (before > 0 || !known):
		f.o.Log.Info("an edge is read", "edge", e.id, "software", brief(snapshot.GetSoftwareVersion()), "failures_before", before)
	case after == 1:
		f.o.Log.Warn("an edge cannot be read", "edge", e.id, "error", err)
	}
	return after
}

// brief is a name that an Edge has made up, short enough for a line.
func brief(name string) string {
	const longest = 64
	if len(name) <= longest {
		return name
	}
	return strings.ToValidUTF8(name[:longest], "") + "…"
}

// noticesOf is what the operator should know of an Edge that answers.
func (f *Fleet) noticesOf(e *edge, s *controlv1.EdgeNodeSnapshot, began time.Time, took time.Duration) (out []string) {
	if got := s.GetEdgeId(); got != e.id {
		out = append(out, fmt.Sprintf("the Edge calls itself %q: give it that id in controlplane.yaml, or look whether the url is right", brief(got)))
	}
	if got := s.GetSoftwareVersion(); got != f.o.Software && got != "" && f.o.Software != "" {
		out = append(out, fmt.Sprintf("the Edge runs version %s, this Control Plane %s", brief(got), f.o.Software))
	}
	if tellsMore(s) {
		out = append(out, "the Edge tells more than this Control Plane understands: it is newer")
	}
	if at := s.GetAt(); at != nil {
		if ahead := at.AsTime().Sub(began.Add(took)); ahead > clockTolerance {
			out = append(out, fmt.Sprintf("the Edge's clock is %s ahead of the Control Plane's", ahead.Round(time.Second)))
		}
		if behind := began.Sub(at.AsTime()); behind > clockTolerance {
			out = append(out, fmt.Sprintf("the Edge's clock is %s behind the Control Plane's", behind.Round(time.Second)))
		}
	}
	if e.noHistory {
		out = append(out, "the Edge is too old to tell its history: of each minute only its end is kept, without waits and outcomes")
	}
	return out
}

// tellsMore reports whether the snapshot or a node or provider in it has fields
// that this version does not know.
func tellsMore(s *controlv1.EdgeNodeSnapshot) bool {
	unknown := func(m protoreflect.ProtoMessage) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }
	if unknown(s) {
		return true
	}
	for _, n := range s.GetNodes() {
		if unknown(n) {
			return true
		}
		for _, p := range n.GetProviders() {
			if unknown(p) {
				return true
			}
		}
	}
	return false
}
