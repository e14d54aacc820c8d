package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
)

// countingSink is a sink whose provider has counted.
type countingSink struct{ sink }

func (*countingSink) Tokens() (input, output int) { return 7, 3 }

// waits lets a request begin to wait, and returns once it does.
func (r *rig) waits(ctx context.Context, req *Request, s Sink) <-chan error {
	before := r.broker.Snapshot().QueueTotal
	done := r.do(ctx, req, s)
	require.Eventually(r.t, func() bool { return r.broker.Snapshot().QueueTotal == before+1 }, 5*time.Second, time.Millisecond)
	require.Eventually(r.t, func() bool { return len(r.d.Live()) > 0 && r.d.Find(req.ID) != 0 }, 5*time.Second, time.Millisecond)
	return done
}

func TestCase_J14_WhatIsLiveIsShownInItsPhase(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	req := request()
	req.Client = "laptop"
	s := &countingSink{sink{got: make(chan struct{})}}
	ctx, leave := context.WithCancel(t.Context())
	done := r.do(ctx, req, s)
	stream := <-r.taken
	require.Eventually(t, func() bool { return r.d.Live()[1].Phase == Prefill }, 5*time.Second, time.Millisecond)
	live := r.d.Live()[1]
	require.Equal(t, Live{Seq: 1, ID: "r1", Client: "laptop", Path: "/v1/chat/completions", Phase: Prefill, Attempts: 1, Target: "big-name-on-n"}, live)

	r.clock.Advance(2 * time.Second)
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("abc")}
	<-s.got
	stream.answers <- Frame{Body: []byte("de")}
	<-s.got
	live = r.d.Live()[1]
	require.Equal(t, Streaming, live.Phase)
	require.EqualValues(t, 2, live.AnswerParts)
	require.EqualValues(t, 5, live.AnswerBytes)
	require.True(t, r.clock.Now().Equal(live.FirstByte))

	waiting := request()
	waiting.ID = "r2"
	waited := r.waits(t.Context(), waiting, &sink{})
	require.Equal(t, Live{Seq: 2, ID: "r2", Path: "/v1/chat/completions"}, r.d.Live()[2])

	leave()
	<-stream.cancels
	require.Equal(t, Leaving, r.d.Live()[1].Phase)
	r.clock.Advance(time.Second)
	stream.answers <- Frame{End: true}
	require.ErrorIs(t, <-done, context.Canceled)
	next := <-r.taken
	next.answers <- Frame{Head: &Head{Status: 503}, End: true}
	require.NoError(t, <-waited)
	require.Empty(t, r.d.Live())

	endings, total := r.d.Endings(8)
	require.EqualValues(t, 2, total)
	require.Equal(t, "provider_error", endings[0].Outcome)
	require.Equal(t, 503, endings[0].Status)
	require.Equal(t, time.Second, endings[0].Grant.QueueWait)
	require.Equal(t, Ending{
		Seq: 1, ID: "r1", Client: "laptop", Group: "both", Path: "/v1/chat/completions", Outcome: "cancelled",
		Began: r.clock.Now().Add(-3 * time.Second), At: r.clock.Now(),
		Grant: Grant{Node: "n", Provider: "p", Target: "big-name-on-n"}, Run: 3 * time.Second, FirstByte: 2 * time.Second, Attempts: 1, Status: 200,
		InputTokens: 7, OutputTokens: 3,
	}, endings[1])
	r.idle()
}

// One that has a slot and no stream yet is told from one that waits.
func TestCase_J14_AReservedRequestDoesNotWait(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	var shown Live
	var was Live
	var err error
	r.parked = func(admission.NodeID) error {
		shown = r.d.Live()[1]
		was, err = r.d.Cancel(1, "")
		return errors.New("no stream is parked")
	}
	require.Error(t, r.d.Do(t.Context(), request(), &sink{}))
	require.NoError(t, err)
	require.Equal(t, Reserved, shown.Phase)
	require.Equal(t, "reserved", was.Phase.String())
	r.idle()
}

func TestCase_J04_EveryEndIsToldOnce(t *testing.T) {
	r := newRig(t)
	outcomes := map[string]int{}
	r.d.Observe(func(e *Ending) { outcomes[e.Outcome]++ })

	require.Error(t, r.d.Do(t.Context(), request(), &sink{})) // nobody is connected
	unknown := request()
	unknown.Group = "nobody's"
	require.ErrorIs(t, r.d.Do(t.Context(), unknown, &sink{}), broker.ErrUnknownGroup)
	r.connect("n")
	for _, answer := range []any{whole, Frame{Failure: &Failure{Code: ProviderTimeout}}, fmt.Errorf("lost")} {
		done := r.do(t.Context(), request(), &sink{})
		(<-r.taken).answers <- answer
		<-done
	}
	require.Equal(t, map[string]int{"unavailable": 1, "unknown_model": 1, "completed": 1, "provider_timeout": 1, "provider_disconnected": 1}, outcomes)
	_, total := r.d.Endings(0)
	require.EqualValues(t, 5, total)
	require.Empty(t, r.d.Live())
}

// What a node says of a failure is kept for long and shown to many.
func TestWhatANodeSaysOfAFailureIsKeptInPart(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	done := r.do(t.Context(), request(), &sink{})
	(<-r.taken).answers <- Frame{Failure: &Failure{Code: ProviderTimeout, Message: "x" + strings.Repeat("é", 1<<20)}}
	require.Error(t, <-done)
	endings, _ := r.d.Endings(1)
	require.Equal(t, "x"+strings.Repeat("é", keptDetail/2-1), endings[0].Detail)
	require.Less(t, r.logs.Len(), 2*keptDetail)
}

// What a client sends as its trace is as long as it likes: it is for the moment only.
func TestATraceIsToldAndNotKept(t *testing.T) {
	r := newRig(t)
	var told string
	r.d.Observe(func(e *Ending) { told = e.TraceParent })
	req := request()
	req.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	require.Error(t, r.d.Do(t.Context(), req, &sink{}))
	require.Equal(t, req.TraceParent, told)
	endings, _ := r.d.Endings(1)
	require.Empty(t, endings[0].TraceParent)
}

func TestAnAdminCancelsWhatWaitsAndWhatRuns(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	done := r.do(t.Context(), request(), &sink{})
	stream := <-r.taken
	require.Eventually(t, func() bool { return r.d.Live()[1].Phase == Prefill }, 5*time.Second, time.Millisecond)
	second := request()
	waited := r.waits(t.Context(), second, &sink{})
	require.Eventually(t, func() bool { return len(r.d.Live()) == 2 }, 5*time.Second, time.Millisecond)

	_, err := r.d.Cancel(0, "r1")
	require.ErrorIs(t, err, ErrAmbiguous)
	_, err = r.d.Cancel(0, "r9")
	require.ErrorIs(t, err, ErrNotLive)
	_, err = r.d.Cancel(9, "")
	require.ErrorIs(t, err, ErrNotLive)

	was, err := r.d.Cancel(2, "")
	require.NoError(t, err)
	require.Equal(t, Waiting, was.Phase)
	var failed *FailedError
	require.ErrorAs(t, <-waited, &failed)
	require.Equal(t, Cancelled, failed.Code)
	require.False(t, failed.HandedOff)

	was, err = r.d.Cancel(0, "r1")
	require.NoError(t, err)
	require.Equal(t, Prefill, was.Phase)
	<-stream.cancels
	select {
	case <-done:
		t.Fatal("the slot was given back before the provider had ended")
	default:
	}
	stream.answers <- Frame{Failure: &Failure{Code: Cancelled}}
	require.ErrorAs(t, <-done, &failed)
	require.Equal(t, Cancelled, failed.Code)
	require.True(t, failed.HandedOff)
	endings, _ := r.d.Endings(2)
	require.Equal(t, "cancelled by an administrator", endings[0].Detail)
	r.idle()
}

func TestEndingsAreBoundedAndFoundByName(t *testing.T) {
	r := newRig(t)
	for i := range keptEndings + 10 {
		req := request()
		req.ID = fmt.Sprint("r", i%(keptEndings+5))
		require.Error(t, r.d.Do(t.Context(), req, &sink{}))
	}
	require.Equal(t, admission.Seq(keptEndings+6), r.d.Find("r0"), "the newest of two")
	require.Zero(t, r.d.Find("r7"), "forgotten")
	endings, total := r.d.Endings(keptEndings * 2)
	require.Len(t, endings, keptEndings)
	require.EqualValues(t, keptEndings+10, total)
	live, ending := r.d.Explain(admission.Seq(keptEndings + 10))
	require.Nil(t, live)
	require.Equal(t, endings[0], *ending)
	live, ending = r.d.Explain(1)
	require.Nil(t, live)
	require.Nil(t, ending)
}
