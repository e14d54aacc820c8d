package nodelink

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	nodesession "github.com/iop-dev/iop/node/session"
	"github.com/iop-dev/iop/proto/framecodec"
)

// puppet is a node that does only what a test makes it do, with the standard
// protobuf codec: the other implementation of the wire.
type puppet struct {
	e         *testEdge
	transport *http.Transport
	session   *connect.BidiStreamForClient[runtimev1.SessionRequest, runtimev1.SessionResponse]
	accepted  *runtimev1.Accepted
}

func (e *testEdge) puppet() *puppet {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	p := &puppet{e: e, transport: &http.Transport{Protocols: protocols}}
	ctx, cancel := context.WithCancel(e.ctx)
	client := connect.NewClient[runtimev1.SessionRequest, runtimev1.SessionResponse](
		&http.Client{Transport: p.transport}, e.url+runtimev1connect.NodeLinkServiceSessionProcedure)
	p.session = client.CallBidiStream(ctx)
	e.t.Cleanup(func() { cancel(); p.transport.CloseIdleConnections() })
	return p
}

func (p *puppet) send(m *runtimev1.SessionRequest) {
	p.e.t.Helper()
	require.NoError(p.e.t, p.session.Send(m))
}

func (p *puppet) receive() *runtimev1.SessionResponse {
	p.e.t.Helper()
	m, err := p.session.Receive()
	require.NoError(p.e.t, err)
	return m
}

// register sends a registration and returns the Edge's answer.
func (p *puppet) register(token string, change func(*runtimev1.Register)) *runtimev1.SessionResponse {
	p.e.t.Helper()
	if token != "" {
		p.session.RequestHeader().Set("Authorization", "Bearer "+token)
	}
	register := &runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-puppet"}
	if change != nil {
		change(register)
	}
	p.send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Register{Register: register}})
	m := p.receive()
	p.accepted = m.GetAccepted()
	return m
}

func (p *puppet) work(token string, id string) *connect.BidiStreamForClient[runtimev1.WorkRequest, runtimev1.WorkResponse] {
	client := connect.NewClient[runtimev1.WorkRequest, runtimev1.WorkResponse](
		&http.Client{Transport: p.transport}, p.e.url+runtimev1connect.NodeLinkServiceWorkProcedure)
	ctx, cancel := context.WithCancel(p.e.ctx)
	p.e.t.Cleanup(cancel)
	stream := client.CallBidiStream(ctx)
	stream.RequestHeader().Set(framecodec.HeaderGenerationToken, token)
	stream.RequestHeader().Set(framecodec.HeaderStreamID, id)
	require.NoError(p.e.t, stream.Send(nil))
	return stream
}

var (
	heartbeat = &runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Heartbeat{Heartbeat: &runtimev1.Heartbeat{}}}
	drain     = &runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Drain{Drain: &runtimev1.NodeDrain{}}}
)

func TestRegistrationsAreRefusedByType(t *testing.T) {
	e := newEdge(t)
	for name, c := range map[string]struct {
		token  string
		change func(*runtimev1.Register)
		want   runtimev1.RejectReason
	}{
		"wrong token":               {"not the token", nil, runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL},
		"no token":                  {"", nil, runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL},
		"no token and unknown node": {"", func(r *runtimev1.Register) { r.NodeId = "stranger" }, runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL},
		"unknown node":              {nodeToken, func(r *runtimev1.Register) { r.NodeId = "stranger" }, runtimev1.RejectReason_REJECT_REASON_UNKNOWN_NODE},
	} {
		t.Run(name, func(t *testing.T) {
			p := e.puppet()
			rejected := p.register(c.token, c.change).GetRejected()
			require.Equal(t, c.want, rejected.GetReason())
			require.NotEmpty(t, rejected.GetMessage())
			require.NotContains(t, rejected.GetMessage(), nodeToken)
			_, err := p.session.Receive()
			require.Error(t, err, "the session ends after a rejection")
		})
	}
	require.EqualValues(t, 3, e.svc.Counters().Rejections["bad_credential"])
	require.Empty(t, e.broker.history())
	require.Empty(t, e.svc.Nodes())
}

func TestANewerNodeIsAcceptedWithTheEdgesVersion(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	accepted := p.register(nodeToken, func(r *runtimev1.Register) { r.ProtocolVersion = 99 }).GetAccepted()
	require.EqualValues(t, framecodec.ProtocolVersion, accepted.GetProtocolVersion())
	require.EqualValues(t, 5000, accepted.GetHeartbeatIntervalMs())
	require.EqualValues(t, 15000, accepted.GetHeartbeatTimeoutMs())
	require.EqualValues(t, 32<<20, accepted.GetBodyLimitBytes())
	require.Len(t, accepted.GetGenerationToken(), 43)
}

func TestMalformedRegistrationsEndTheSession(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.send(heartbeat)
	_, err := p.session.Receive()
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))

	p = e.puppet()
	p.session.RequestHeader().Set("Authorization", "Bearer "+nodeToken)
	p.send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Register{Register: &runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "short"}}})
	_, err = p.session.Receive()
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.ErrorContains(t, err, "instance_id")
	require.Empty(t, e.broker.history())
}

func TestS12_ARejectedDuplicateDoesNotDisturbTheOwner(t *testing.T) {
	e := newEdge(t)
	e.connect("owner", echo)
	h := e.take()
	for range 3 {
		var rejected *nodesession.RejectedError
		require.ErrorAs(t, await(e, e.startNode("other", echo).done), &rejected)
		require.Equal(t, runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER, rejected.Reason)
		require.False(t, rejected.Final())
	}
	require.NoError(t, h.begin("still mine"))
	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	require.Equal(t, "still mine", string(f.Body))
	h.Park()
	require.Equal(t, []string{"connect gx10 1"}, e.broker.history())
	e.event("connected gx10")
	require.Empty(t, e.events)
}

func TestS12_StaleDisconnectIsFenced(t *testing.T) {
	e := newEdge(t)
	first := e.connect("owner", echo)
	held := e.take()
	second := e.connect("owner", echo) // the same process comes back
	require.Error(t, await(e, first.done))
	held.Discard()
	e.event("connected gx10")
	e.event("disconnected gx10: the same process connected again")
	e.event("connected gx10")

	want := []string{"connect gx10 1", "disconnect gx10 1", "connect gx10 2"}
	require.Equal(t, want, e.broker.history())
	_, err := e.svc.Take(e.ctx, nodeID, 1)
	require.ErrorIs(t, err, dispatch.ErrLinkLost)
	require.Equal(t, "on the new generation", e.exchange("on the new generation"))
	// The first connection is over to its last handler; nothing it did late
	// reached the broker or the events.
	require.Equal(t, want, e.broker.history())
	require.Empty(t, e.events)
	second.stop()
	require.NoError(t, await(e, second.done))
	e.event("disconnected gx10")
	require.Equal(t, append(want, "disconnect gx10 2"), e.broker.history())
}

func TestS12_AStaleCloseChangesNothing(t *testing.T) {
	e := newEdge(t)
	idle := func() *transport { return &transport{over: true, body: &bodyReader{}} }
	register := &runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-1"}
	old, refusal := e.svc.admit(register, nodeToken, idle(), "a")
	require.Nil(t, refusal)
	current, refusal := e.svc.admit(register, nodeToken, idle(), "b")
	require.Nil(t, refusal)
	history := e.broker.history()
	for range 3 {
		e.svc.end(old, "late", abrupt)
		e.svc.drainNode(old, 0)
		old.drain()
	}
	require.Equal(t, append(history, "drain gx10 1", "drain gx10 1", "drain gx10 1"), e.broker.history(), "and the broker fences those")
	require.True(t, e.svc.Nodes()[0].Connected)
	require.Equal(t, current.generation, e.svc.owners()[0].generation)
}

func TestS12_ASilentOwnerIsFencedForAnotherProcess(t *testing.T) {
	e := newEdge(t)
	idle := func() *transport { return &transport{over: true, body: &bodyReader{}} }
	// The owner's own watch is not running: the newcomer's arrival must do.
	_, refusal := e.svc.admit(&runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-1"}, nodeToken, idle(), "a")
	require.Nil(t, refusal)
	other := &runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-2"}
	e.clock.Advance(silence - 1)
	_, refusal = e.svc.admit(other, nodeToken, idle(), "b")
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER, refusal.GetReason())
	e.clock.Advance(1)
	_, refusal = e.svc.admit(other, nodeToken, idle(), "b")
	require.Nil(t, refusal)
	require.Equal(t, []string{"connect gx10 1", "disconnect gx10 1", "connect gx10 2"}, e.broker.history())
}

// An Edge that was stopped has the heartbeats of a live owner in its sockets: a
// duplicate that is read first does not disturb it.
func TestCase_G04_S12_AnEdgeThatWasStoppedGivesNoOwnerAway(t *testing.T) {
	e := newEdge(t)
	owner := e.puppet()
	owner.register(nodeToken, nil)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2)) // heartbeats and silence
	e.clock.Advance(silence + stopped + 1)                  // in one leap
	duplicate := e.puppet().register(nodeToken, func(r *runtimev1.Register) { r.InstanceId = "instance-2" })
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER, duplicate.GetRejected().GetReason())
	require.Equal(t, []string{"connect gx10 1"}, e.broker.history())
}

func TestS12_TheHeartbeatTimeoutIsExactAndRunsFromTheLastMessage(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	require.NotNil(t, p.register(nodeToken, nil).GetAccepted())
	e.event("connected gx10")
	start := e.clock.Now()
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2)) // heartbeat and timeout
	e.clock.Advance(10 * time.Second)
	p.send(heartbeat) // and the Edge is known to have it when it acts on the next message
	p.send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Drain{Drain: &runtimev1.NodeDrain{}}})
	await(e, e.broker.drained)
	e.event("disconnected gx10: drained")
	require.Equal(t, 10*time.Second, e.svc.Nodes()[0].LastSeen.Sub(start))

	p = e.puppet()
	require.NotNil(t, p.register(nodeToken, nil).GetAccepted())
	e.event("connected gx10")
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take() // keeps the draining session
	start = e.clock.Now()
	e.clock.Advance(10 * time.Second)
	p.send(drain)
	await(e, e.broker.drained)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(silence - 1)
	require.True(t, e.svc.Nodes()[0].Connected)
	require.Empty(t, e.events)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(1)
	e.event("disconnected gx10: heartbeat timeout")
	e.broker.mu.Lock()
	require.Equal(t, 10*time.Second+silence, e.broker.lostAt.Sub(start))
	e.broker.mu.Unlock()
	var f dispatch.Frame
	require.ErrorIs(t, h.Receive(&f), dispatch.ErrLinkLost)
	h.Discard()
	_, err := stream.Receive()
	require.Error(t, err)
}

func TestTheEdgeSendsHeartbeats(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(beat)
	require.NotNil(t, p.receive().GetHeartbeat())
}

func TestARegistrationThatNeverComesIsGivenUp(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	require.NoError(t, p.session.Send(nil))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 1))
	e.clock.Advance(registerTimeout)
	_, err := p.session.Receive()
	require.Error(t, err)
}

func TestASilentHandOffIsAskedForAndReadmittedIfNeverSeen(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	_ = p.work(p.accepted.GetGenerationToken(), "1") // a dead path: never read
	h := e.take()
	require.NoError(t, h.begin("lost"))
	received := make(chan error, 1)
	go func() { var f dispatch.Frame; received <- h.Receive(&f) }()
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3))
	e.clock.Advance(silentHandOff)
	query := p.receive().GetQuery()
	require.EqualValues(t, 1, query.GetStreamId())
	require.EqualValues(t, 1, query.GetRequestNumber())

	p.told(1, 1, true)  // changes nothing
	p.told(1, 9, false) // of another request
	p.told(1, 1, false)
	require.ErrorIs(t, await(e, received), dispatch.ErrNeverSeen)
	h.Discard()
}

// A stream that breaks under a request may be the first that is seen of the
// node's death: the slot is kept until the node is known to be there, or not.
func TestS13_ABrokenStreamKeepsItsSlotUntilTheNodeIsHeardOf(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(e *testEdge, p *puppet)
		want error
	}{
		"the node has seen the request": {func(_ *testEdge, p *puppet) { p.told(1, 1, true) }, dispatch.ErrLinkLost},
		"the node has not seen it":      {func(_ *testEdge, p *puppet) { p.told(1, 1, false) }, dispatch.ErrNeverSeen},
		"the session ends, too":         {func(_ *testEdge, p *puppet) { require.NoError(t, p.session.CloseRequest()) }, dispatch.ErrLinkLost},
		"the node is silent":            {func(e *testEdge, _ *puppet) { e.clock.Advance(lossPatience) }, dispatch.ErrLinkLost},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			p := e.puppet()
			p.register(nodeToken, nil)
			stream := p.work(p.accepted.GetGenerationToken(), "1")
			h := e.take()
			require.NoError(t, h.begin("x"))
			received := make(chan error, 1)
			go func() { var f dispatch.Frame; received <- h.Receive(&f) }()
			require.NoError(t, stream.CloseRequest())
			require.NoError(t, stream.CloseResponse())
			query := p.receive().GetQuery()
			require.EqualValues(t, 1, query.GetStreamId())
			require.EqualValues(t, 1, query.GetRequestNumber())
			require.NoError(t, e.clock.BlockUntilContext(e.ctx, 4)) // heartbeats, silence, the probe, patience
			require.Empty(t, received)
			c.tell(e, p)
			require.ErrorIs(t, await(e, received), c.want)
			if name == "the session ends, too" {
				require.Equal(t, []string{"connect gx10 1", "disconnect gx10 1"}, e.broker.history(), "the fence comes first")
			}
			h.Discard()
		})
	}
}

// told sends the answer to a Query.
func (p *puppet) told(stream uint32, number uint64, seen bool) {
	p.e.t.Helper()
	p.send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_QueryResult{QueryResult: &runtimev1.QueryResult{
		StreamId: stream, RequestNumber: number, Seen: seen,
	}}})
}

func TestAnAnsweredHandOffIsNotAskedFor(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take()
	require.NoError(t, h.begin("x"))
	request, err := stream.Receive()
	require.NoError(t, err)
	require.Equal(t, "x", string(request.GetBody()))
	require.NoError(t, stream.Send(&runtimev1.WorkRequest{RequestNumber: request.GetRequestNumber(), Head: &runtimev1.ResponseHead{Status: 200}}))
	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(silentHandOff)
	e.clock.Advance(beat - silentHandOff)
	require.NotNil(t, p.receive().GetHeartbeat(), "and no query before it")
	h.Discard()
}

func TestAFrameOfAnotherRequestIsAnError(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take()
	require.NoError(t, h.begin("x"))
	_, err := stream.Receive()
	require.NoError(t, err)
	require.NoError(t, stream.Send(&runtimev1.WorkRequest{RequestNumber: 5, End: true}))
	var f dispatch.Frame
	require.ErrorIs(t, h.Receive(&f), dispatch.ErrLinkLost)
	h.Discard()
}

func TestAStreamTheNodeEndsIsNoLongerOffered(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take()
	require.NoError(t, stream.CloseRequest())
	require.NoError(t, stream.CloseResponse())
	var f dispatch.Frame
	require.ErrorIs(t, h.Receive(&f), dispatch.ErrLinkLost)
	h.Park()
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.svc.Take(ctx, nodeID, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestATakeWaitsForAStream(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	ctx, cancel := context.WithCancel(e.ctx)
	var wg sync.WaitGroup
	gaveUp, got := make(chan error, 1), make(chan dispatch.Stream, 1)
	wg.Go(func() { _, err := e.svc.Take(ctx, nodeID, 1); gaveUp <- err })
	cancel()
	require.ErrorIs(t, await(e, gaveUp), context.Canceled)
	wg.Go(func() {
		s, err := e.svc.Take(e.ctx, nodeID, 1)
		if err != nil {
			t.Error(err)
		}
		got <- s
	})
	_ = p.work(p.accepted.GetGenerationToken(), "1")
	await(e, got).Discard()
	wg.Wait()

	lost := make(chan error, 1)
	wg.Go(func() { _, err := e.svc.Take(e.ctx, nodeID, 1); lost <- err })
	e.svc.end(e.svc.owners()[0], "over", abrupt)
	require.ErrorIs(t, await(e, lost), dispatch.ErrLinkLost)
	wg.Wait()
}

func TestANodeThatDoesNotReadItsSessionIsCutOff(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	e.event("connected gx10")
	s := e.svc.owners()[0]
	big := &runtimev1.ProviderSet{}
	for i := range 1000 {
		big.Providers = append(big.Providers, &runtimev1.Provider{Id: fmt.Sprint(i), Type: "vllm", BaseUrl: "http://127.0.0.1:8000"})
	}
	for range 4 * sessionQueue { // the puppet reads none of them
		s.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Providers{Providers: big}})
	}
	e.event("disconnected gx10: the node does not read its session stream")
	require.EqualValues(t, 1, min(e.svc.Counters().Overflows, 1))
}
