package nodelink

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// S12: two machines that are configured with one node id are told apart: the
// Edge's log names both, once, however often the second one tries; the second one
// is told who is there and what to do; and the status shows it.
func TestS12_Case_G08_TwoMachinesWithOneNodeIdAreToldApart(t *testing.T) {
	e := newEdge(t)
	owner := e.puppet()
	owner.register(nodeToken, func(r *runtimev1.Register) {
		r.InstanceId, r.SoftwareVersion, r.Os, r.Arch = "instance-desk", "v1.2.0", "linux", "amd64"
	})
	claim := func() *runtimev1.Rejected {
		return e.puppet().register(nodeToken, func(r *runtimev1.Register) {
			r.InstanceId, r.SoftwareVersion, r.Os, r.Arch = "instance-attic", "v1.3.0", "darwin", "arm64"
		}).GetRejected()
	}
	for range 5 {
		rejected := claim()
		require.Equal(t, runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER, rejected.GetReason())
		for _, part := range []string{"v1.2.0", "linux/amd64", "127.0.0.1:", "instance-desk", `"gx10"`, "stop one of the two", "id of its own", "as soon as the other has gone"} {
			require.Contains(t, rejected.GetMessage(), part)
		}
	}
	warnings := func() []string {
		var found []string
		for line := range strings.Lines(e.logs.String()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "two processes use one node id") {
				found = append(found, line)
			}
		}
		return found
	}
	require.Len(t, warnings(), 1, "the cadence does not flood the log")
	for _, part := range []string{
		"node=gx10", "owner.instance=instance-desk", "owner.version=v1.2.0", "owner.os=linux", "owner.arch=amd64", "owner.remote=127.0.0.1:",
		"refused.instance=instance-attic", "refused.version=v1.3.0", "refused.os=darwin", "refused.arch=arm64", "refused.remote=127.0.0.1:",
	} {
		require.Contains(t, warnings()[0], part)
	}
	status := e.svc.Nodes()[0]
	require.Equal(t, "instance-desk", status.InstanceID)
	require.EqualValues(t, 5, status.Duplicates)
	require.Equal(t, "instance-attic", status.Rival.InstanceID)
	require.Equal(t, "darwin", status.Rival.OS)
	require.EqualValues(t, 5, e.svc.Counters().Rejections["duplicate_owner"])
	require.Equal(t, []string{"connect gx10 1"}, e.broker.history())

	// The trouble lasts: it is told of again after a while, with the number of tries.
	for range int(repeatInterval / beat) {
		e.clock.Advance(beat)
		owner.send(heartbeat)
		e.heard(owner)
	}
	claim()
	require.Len(t, warnings(), 2)
	require.Contains(t, warnings()[1], "repeated=4")
}

// heard waits until the Edge has handled what the puppet has sent.
func (e *testEdge) heard(p *puppet) {
	e.t.Helper()
	s := e.svc.owners()[0]
	require.Eventually(e.t, func() bool { return s.silence() < time.Second }, 10*time.Second, time.Millisecond)
}

func TestWarningsThatRepeatAreBounded(t *testing.T) {
	e := newEdge(t)
	r := &e.svc.log
	for i := range 3 * maxRepeats {
		r.warn(strings.Repeat("k", i), "again")
	}
	require.LessOrEqual(t, len(r.told), maxRepeats)
}

// The prohibition: node.disconnected is never published before the ownership
// check. When an event comes, the core has made the transition it tells of; a
// connection that is not the owner's, or not any more, leaves none.
func TestS12_NodeDisconnectedIsNeverPublishedBeforeTheOwnershipCheck(t *testing.T) {
	e := newEdge(t)
	events := &orderCheck{t: t, broker: e.broker}
	e.svc.cfg.Events = events
	idle := func() *transport { return &transport{over: true, body: &bodyReader{}} }
	register := &runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-1"}
	first, refusal := e.svc.admit(register, nodeToken, idle(), "a")
	require.Nil(t, refusal)
	_, refusal = e.svc.admit(&runtimev1.Register{ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-2"}, nodeToken, idle(), "b")
	require.NotNil(t, refusal)
	second, refusal := e.svc.admit(register, nodeToken, idle(), "c") // comes back: the first is fenced
	require.Nil(t, refusal)
	e.svc.end(first, "a late close of the fenced one", abrupt)
	require.Len(t, events.told, 3)
	e.svc.end(second, "its own close", abrupt)
	e.svc.end(second, "and once more", abrupt)
	third, refusal := e.svc.admit(register, nodeToken, idle(), "d")
	require.Nil(t, refusal)
	// Had somebody else fenced it, there would be nothing to tell.
	require.True(t, e.broker.Disconnect(nodeID, third.generation))
	e.svc.end(third, "the core knows better", abrupt)
	require.Equal(t, []string{"connected", "disconnected", "connected", "disconnected", "connected"}, events.told)
}

// orderCheck hears events and finds, for each, the transition in the core that it
// tells of.
type orderCheck struct {
	t      *testing.T
	broker *testBroker
	told   []string
}

func (o *orderCheck) hear(event, call string) {
	o.told = append(o.told, event)
	events, calls := 0, 0
	for _, e := range o.told {
		if e == event {
			events++
		}
	}
	for _, c := range o.broker.history() {
		if strings.HasPrefix(c, call+" ") {
			calls++
		}
	}
	if events > calls {
		o.t.Errorf("%s is told before the core's %s: %v", event, call, o.broker.history())
	}
}

func (o *orderCheck) NodeConnected(admission.NodeID)            { o.hear("connected", "connect") }
func (o *orderCheck) NodeDisconnected(admission.NodeID, string) { o.hear("disconnected", "disconnect") }
