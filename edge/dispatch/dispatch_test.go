package dispatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an Edge without a wire: a real broker, and streams that the test plays
// the node on.
type rig struct {
	t      *testing.T
	clock  *clockwork.FakeClock
	broker *broker.Broker
	gens   map[admission.NodeID]admission.Generation
	logs   *bytes.Buffer
	d      *Dispatcher
	taken  chan *fakeStream // streams as dispatch takes them
	parked func(admission.NodeID) error
	// sending, if set, is what Send does.
	sending func(*fakeStream) error
}

func newRig(t *testing.T) *rig {
	res := func(node admission.NodeID) admission.Resource {
		return admission.Resource{Key: admission.ResourceKey{Node: node, Provider: "p"}, Capacity: 1, Enabled: true, Surfaces: admission.SurfaceChat}
	}
	r := &rig{t: t, clock: clockwork.NewFakeClock(), gens: map[admission.NodeID]admission.Generation{}, logs: &bytes.Buffer{}, taken: make(chan *fakeStream, 8)}
	r.broker = broker.New(r.clock, admission.Config{
		Scopes:    []admission.Scope{{Key: admission.PoolScope, MaxQueue: 4, Timeout: time.Minute}},
		Resources: []admission.Resource{res("n"), res("m")},
		Groups: []admission.Group{{Key: "both", Scope: admission.PoolScope, Candidates: []admission.Candidate{
			{Resource: admission.ResourceKey{Node: "n", Provider: "p"}, Target: "big-name-on-n"},
			{Resource: admission.ResourceKey{Node: "m", Provider: "p"}, Target: "m"},
		}}},
	})
	t.Cleanup(r.broker.Stop)
	r.d = New(r.broker, r, r.clock, slog.New(slog.NewTextHandler(r.logs, nil)))
	return r
}

func (r *rig) connect(node admission.NodeID) { r.gens[node] = r.broker.Connect(node) }

func (r *rig) Take(_ context.Context, node admission.NodeID, gen admission.Generation) (Stream, error) {
	require.Equal(r.t, r.gens[node], gen)
	if r.parked != nil {
		if err := r.parked(node); err != nil {
			return nil, err
		}
	}
	s := &fakeStream{rig: r, node: node, answers: make(chan any, 16), cancels: make(chan struct{}, 8)}
	r.taken <- s
	return s, nil
}

// fakeStream plays one work stream; answers holds Frames and errors.
type fakeStream struct {
	rig     *rig
	node    admission.NodeID
	begin   *Begin
	body    []byte
	frames  int
	answers chan any
	cancels chan struct{}
	end     string
}

func (s *fakeStream) Send(f *RequestFrame) error {
	if s.rig.sending != nil {
		return s.rig.sending(s)
	}
	if f.Begin != nil {
		s.begin = f.Begin
	}
	n := 0
	for _, p := range f.Parts {
		s.body = append(s.body, p...)
		n += len(p)
	}
	if n > MaxFrameBody {
		return errors.New("frame too large")
	}
	s.frames++
	return nil
}

func (s *fakeStream) Receive(f *Frame) error {
	switch a := (<-s.answers).(type) {
	case Frame:
		*f = a
		return nil
	case error:
		return a
	}
	return io.ErrUnexpectedEOF
}

func (s *fakeStream) Cancel()  { s.cancels <- struct{}{} }
func (s *fakeStream) Park()    { s.end += "parked" }
func (s *fakeStream) Discard() { s.end += "discarded" }

type sink struct {
	grant  Grant
	status int
	body   string
	err    error
	whole  bool
	got    chan struct{} // when not nil: told of each frame
}

func (s *sink) Frame(g *Grant, f *Frame) error {
	s.grant = *g
	if f.Head != nil {
		s.status = f.Head.Status
	}
	s.body += string(f.Body)
	if s.got != nil {
		s.got <- struct{}{}
	}
	return s.err
}

func (s *sink) Complete() bool { return s.whole }

var whole = Frame{Head: &Head{Status: 200}, Body: []byte("answer"), End: true}

func request() *Request {
	return &Request{ID: "r1", Group: "both", Surface: admission.SurfaceChat, Path: "/v1/chat/completions", Body: []byte(`{"model":"both","x":1}`), ModelStart: 9, ModelEnd: 15}
}

func (r *rig) do(ctx context.Context, req *Request, s Sink) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.d.Do(ctx, req, s) }()
	return done
}

func (r *rig) idle() {
	r.t.Helper()
	snap := r.broker.Snapshot()
	require.Zero(r.t, snap.InFlight)
	require.Zero(r.t, snap.QueueTotal)
	require.Zero(r.t, snap.Counters.DoubleReleases)
}

func TestWholeAnswer(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	var s sink
	done := r.do(t.Context(), request(), &s)
	stream := <-r.taken
	stream.answers <- whole
	require.NoError(t, <-done)
	require.Equal(t, "parked", stream.end)
	require.Equal(t, `{"model":"big-name-on-n","x":1}`, string(stream.body))
	require.Equal(t, len(stream.body), stream.begin.ContentLength)
	require.Equal(t, 1, stream.frames)
	require.Equal(t, Grant{Node: "n", Provider: "p", Target: "big-name-on-n"}, s.grant)
	require.Equal(t, "answer", s.body)
	r.idle()
	require.Contains(t, r.logs.String(), "outcome=completed")
}

func TestLargeBodyGoesInFrames(t *testing.T) {
	r := newRig(t)
	r.connect("m")
	req := request()
	req.Body = []byte(`{"model":"both","x":"` + strings.Repeat("y", 1<<20) + `"}`)
	done := r.do(t.Context(), req, &sink{})
	stream := <-r.taken
	stream.answers <- whole
	require.NoError(t, <-done)
	require.Equal(t, strings.Replace(string(req.Body), `"both"`, `"m"`, 1), string(stream.body))
	require.Greater(t, stream.frames, 4)
}

func TestFailuresThatOpenedNothingMoveOn(t *testing.T) {
	for _, refusal := range []any{
		Frame{Failure: &Failure{Code: ProviderBusy}}, Frame{Failure: &Failure{Code: ProviderUnreachable}},
		Frame{Failure: &Failure{Code: NeverOpened}}, error(ErrNeverSeen),
	} {
		r := newRig(t)
		r.connect("n")
		r.connect("m")
		var s sink
		done := r.do(t.Context(), request(), &s)
		first := <-r.taken
		first.answers <- refusal
		second := <-r.taken
		second.answers <- whole
		require.NoError(t, <-done)
		require.NotEqual(t, first.node, second.node)
		require.Equal(t, second.node, s.grant.Node)
		r.idle()
	}
}

// With no candidate left, the refusal itself is the answer.
func TestLastRefusalIsTold(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	done := r.do(t.Context(), request(), &sink{})
	(<-r.taken).answers <- Frame{Failure: &Failure{Code: ProviderBusy, Message: "gate full"}}
	var failed *FailedError
	require.ErrorAs(t, <-done, &failed)
	require.Equal(t, ProviderBusy, failed.Code)
	require.False(t, failed.HandedOff, "it says that nothing has reached a provider")
	r.idle()
}

// A node that claims after its answer's head that it opened nothing is not
// believed: the client has a part of an answer.
func TestNothingIsRepeatedOnceTheAnswerHasBegun(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	r.connect("m")
	done := r.do(t.Context(), request(), &sink{})
	stream := <-r.taken
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("a")}
	stream.answers <- Frame{Failure: &Failure{Code: NeverOpened}}
	var failed *FailedError
	require.ErrorAs(t, <-done, &failed)
	require.True(t, failed.Started)
	require.True(t, failed.HandedOff)
	require.Empty(t, r.taken)
	r.idle()
}

// C21: what may have reached a provider is never repeated.
func TestCase_C21_NothingIsRepeated(t *testing.T) {
	for _, loss := range []any{Frame{Failure: &Failure{Code: ProviderDisconnected}}, error(ErrLinkLost), Frame{Failure: &Failure{Code: ProviderTimeout}}} {
		for _, started := range []bool{false, true} {
			r := newRig(t)
			r.connect("n")
			r.connect("m")
			done := r.do(t.Context(), request(), &sink{})
			stream := <-r.taken
			if started {
				stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("a")}
			}
			stream.answers <- loss
			var failed *FailedError
			require.ErrorAs(t, <-done, &failed)
			require.Equal(t, started, failed.Started)
			require.True(t, failed.HandedOff)
			require.Empty(t, r.taken)
			_, lost := loss.(error)
			require.Equal(t, map[bool]string{true: "discarded", false: "parked"}[lost], stream.end)
			r.idle()
		}
	}
}

// The slot comes back with the node's final frame, not with the client's going.
func TestCancelWaitsForTheNode(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	ctx, leave := context.WithCancel(t.Context())
	s := sink{got: make(chan struct{}, 4)}
	done := r.do(ctx, request(), &s)
	stream := <-r.taken
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("one")}
	<-s.got
	leave()
	<-stream.cancels
	require.Equal(t, 1, r.broker.Snapshot().InFlight)
	stream.answers <- Frame{Body: []byte("two")}
	stream.answers <- Frame{Failure: &Failure{Code: Cancelled}}
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, "one", s.body, "bytes for nobody")
	require.Equal(t, "parked", stream.end)
	r.idle()
	require.Contains(t, r.logs.String(), "outcome=cancelled")
}

// A client that hangs up once it has the end marker was served.
func TestClientThatLeavesWithTheWholeAnswer(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	ctx, leave := context.WithCancel(t.Context())
	s := sink{got: make(chan struct{}, 4), whole: true}
	done := r.do(ctx, request(), &s)
	stream := <-r.taken
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("data: [DONE]")}
	<-s.got
	leave()
	<-stream.cancels
	stream.answers <- Frame{Failure: &Failure{Code: Cancelled}}
	require.NoError(t, <-done)
	r.idle()
	require.Contains(t, r.logs.String(), "outcome=completed")
}

func TestClientThatCannotBeWrittenTo(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	broken := errors.New("broken pipe")
	done := r.do(t.Context(), request(), &sink{err: broken})
	stream := <-r.taken
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("one")}
	<-stream.cancels
	stream.answers <- Frame{Body: []byte("two")}
	stream.answers <- Frame{Failure: &Failure{Code: Cancelled}}
	require.ErrorIs(t, <-done, broken)
	require.Equal(t, "parked", stream.end)
	r.idle()
}

// A node that does not read holds up a Send until the request is over and its
// stream is cut: that end is told, not the stream's.
func TestEndWhileTheRequestIsStillBeingSent(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	cut := func(s *fakeStream) error {
		<-s.cancels
		return ErrLinkLost
	}
	r.sending = cut
	ctx, leave := context.WithCancel(t.Context())
	done := r.do(ctx, request(), &sink{})
	<-r.taken
	leave()
	require.ErrorIs(t, <-done, context.Canceled)

	req := request()
	req.TotalTimeout = 5 * time.Second
	sending := make(chan struct{})
	r.sending = func(s *fakeStream) error { close(sending); return cut(s) }
	done = r.do(t.Context(), req, &sink{})
	<-r.taken
	<-sending
	r.clock.Advance(5 * time.Second)
	var failed *FailedError
	require.ErrorAs(t, <-done, &failed)
	require.Equal(t, ProviderTimeout, failed.Code)
	require.Contains(t, r.logs.String(), "outcome=cancelled")
	r.idle()
}

func TestTotalTimeoutCountsWaiting(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	first := r.do(t.Context(), request(), &sink{})
	stream := <-r.taken
	req := request()
	req.TotalTimeout = 5 * time.Second
	second := r.do(t.Context(), req, &sink{})
	require.Eventually(t, func() bool { return r.broker.Snapshot().QueueTotal == 1 }, 10*time.Second, time.Millisecond)
	r.clock.Advance(5 * time.Second)
	var failed *FailedError
	require.ErrorAs(t, <-second, &failed)
	require.Equal(t, ProviderTimeout, failed.Code)
	require.False(t, failed.HandedOff)
	stream.answers <- whole
	require.NoError(t, <-first)

	// What is left goes with the hand-off, so that the node ends it too.
	third := r.do(t.Context(), req, &sink{})
	stream = <-r.taken
	stream.answers <- whole
	require.NoError(t, <-third)
	require.Equal(t, 5*time.Second, stream.begin.TotalTimeout)
	r.idle()
}

// S12: the node goes between the grant and the hand-off; nothing is sent on the
// old generation, and the request moves with its place.
func TestS12_FencedBetweenGrantAndHandOff(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	r.parked = func(node admission.NodeID) error {
		if node == "n" {
			r.connect("m")
			r.broker.Disconnect("n", r.gens["n"])
			return ErrLinkLost
		}
		return nil
	}
	var s sink
	done := r.do(t.Context(), request(), &s)
	stream := <-r.taken
	stream.answers <- whole
	require.NoError(t, <-done)
	require.EqualValues(t, "m", s.grant.Node)
	r.idle()
}

func TestS13_TrackedEndsWhenItsNodeGoes(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	r.connect("m")
	s := sink{got: make(chan struct{}, 4)}
	done := r.do(t.Context(), request(), &s)
	stream := <-r.taken
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("a")}
	<-s.got
	r.broker.Disconnect(stream.node, r.gens[stream.node])
	stream.answers <- error(ErrLinkLost)
	var failed *FailedError
	require.ErrorAs(t, <-done, &failed)
	require.Equal(t, ProviderDisconnected, failed.Code)
	require.Empty(t, r.taken, "moved to another node")
	snap := r.broker.Snapshot()
	require.Equal(t, snap.Counters.Granted, snap.Counters.Released)
	require.Zero(t, snap.Counters.DoubleReleases)
}
