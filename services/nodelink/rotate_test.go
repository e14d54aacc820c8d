package nodelink

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	nodesession "github.com/iop-dev/iop/node/session"
)

// joinedEdge is an Edge whose node has a credential of its own, which is a day old.
type joinedEdge struct {
	*testEdge
	*credentials.Registry
	keyring *auth.Keyring
	first   string
}

func newJoinedEdge(t *testing.T) *joinedEdge {
	e := &joinedEdge{testEdge: newEdge(t), keyring: auth.NewKeyring(auth.Credentials{})}
	e.Registry = credentials.Open(credentials.Options{
		Dir: filepath.Join(t.TempDir(), "state"), Keyring: e.keyring, Clock: e.clock, Log: slog.New(slog.DiscardHandler),
		Fence: func(node string) bool { return e.svc.Revoke(admission.NodeID(node)) },
	}, auth.Credentials{Joined: []string{nodeID}})
	t.Cleanup(func() { e.svc.Close(); e.Close() }) // no write outlives the folder
	e.svc.cfg.Authenticator, e.svc.cfg.Credentials = e.keyring, e.Registry
	token, _, err := e.CreateJoinToken("me", nodeID, 0)
	require.NoError(t, err)
	e.first, _, err = e.Join(token, nodeID)
	require.NoError(t, err)
	e.Used(nodeID, e.first)
	e.clock.Advance(credentials.RotateAfter)
	return e
}

func (e *joinedEdge) passes(secret string) bool {
	_, ok := e.keyring.Node(nodeID, secret)
	return ok
}

func takes(r *runtimev1.Register) { r.TakesCredential = true }

func proof(credential string) *runtimev1.SessionRequest {
	return &runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_CredentialTaken{CredentialTaken: &runtimev1.CredentialTaken{Credential: credential}}}
}

// offer is the next credential that a puppet is sent.
func (p *puppet) offer() string {
	p.e.t.Helper()
	for {
		if next := p.receive().GetNextCredential(); next != nil {
			return next.GetCredential()
		}
	}
}

// disk is a node's credential, on its disk.
type disk struct {
	mu   sync.Mutex
	has  string
	fail error
	kept chan string
}

func (d *disk) keep(next string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		d.has = next
	}
	d.kept <- next
	return d.fail
}

// A node with an old credential has the next one when it registers; with its first
// use the former one ends.
func TestU04_AnOldCredentialIsReplacedAtARegistration(t *testing.T) {
	e := newJoinedEdge(t)
	d := &disk{has: e.first, kept: make(chan string, 10)}
	n := e.connect("one", echo, func(c *nodesession.Config) { c.Token, c.KeepCredential = e.first, d.keep })
	next := await(e.testEdge, d.kept)
	require.Eventually(t, func() bool { return !e.passes(e.first) }, 20*time.Second, time.Millisecond)
	require.True(t, e.passes(next))
	require.Equal(t, "x", e.exchange("x"), "the session goes on")
	e.svc.PushProviders()
	require.Equal(t, "y", e.exchange("y"), "a refresh finds its credential good")
	require.Equal(t, []string{"connect gx10 1"}, e.broker.history())

	n.stop()
	require.NoError(t, await(e.testEdge, n.done))
	e.connect("one", echo, func(c *nodesession.Config) { c.Token, c.KeepCredential = next, d.keep })
	require.NotContains(t, e.logs.String(), next)
	require.NotContains(t, e.logs.String(), e.first)
}

// On a session that lasts the credential is replaced each day, on the Edge's clock.
func TestU04_ACredentialIsReplacedOnALongSession(t *testing.T) {
	e := newJoinedEdge(t)
	e.svc.cfg.HeartbeatInterval, e.svc.cfg.HeartbeatTimeout = time.Hour, 3*time.Hour
	p := e.puppet()
	require.NotNil(t, p.register(e.first, takes).GetAccepted())
	has := e.first
	for range 3 {
		next := p.offer()
		require.True(t, e.passes(has))
		p.send(proof(next))
		require.Eventually(t, func() bool { return !e.passes(has) }, 20*time.Second, time.Millisecond)
		has = next
		for range int(credentials.RotateAfter / time.Hour) {
			e.clock.Advance(time.Hour)
			seen := e.clock.Now()
			p.send(heartbeat)
			require.Eventually(t, func() bool { return e.svc.Nodes()[0].LastSeen.Equal(seen) }, 20*time.Second, time.Millisecond)
		}
	}
	require.Equal(t, []string{"connect gx10 1"}, e.broker.history())
}

// A stolen credential is worth nothing once its successor was used, and whoever
// shows it is in the log.
func TestU04_AReplacedCredentialIsRefusedAndLogged(t *testing.T) {
	e := newJoinedEdge(t)
	p := e.puppet()
	p.register(e.first, takes)
	p.send(proof(p.offer()))
	require.Eventually(t, func() bool { return !e.passes(e.first) }, 20*time.Second, time.Millisecond)
	rejected := e.puppet().register(e.first, func(r *runtimev1.Register) { r.InstanceId = "instance-thief" }).GetRejected()
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL, rejected.GetReason())
	require.Contains(t, rejected.GetMessage(), "was replaced by another")
	require.Contains(t, e.logs.String(), "instance-thief")
	require.Contains(t, e.logs.String(), "was replaced by another")
	require.Len(t, e.broker.history(), 1, "the owner is not disturbed")
}

// A node that cannot keep its next credential goes on with the present one, and is
// offered another when it comes back.
func TestANodeThatCannotKeepACredentialGoesOn(t *testing.T) {
	e := newJoinedEdge(t)
	d := &disk{has: e.first, fail: errors.New("the disk is full"), kept: make(chan string, 10)}
	n := e.connect("one", echo, func(c *nodesession.Config) { c.Token, c.KeepCredential = e.first, d.keep })
	lost := await(e.testEdge, d.kept)
	require.Equal(t, "x", e.exchange("x"))
	n.stop()
	require.NoError(t, await(e.testEdge, n.done))
	require.Contains(t, e.logs.String(), "the disk is full")
	require.True(t, e.passes(e.first))

	d.fail = nil
	e.connect("one", echo, func(c *nodesession.Config) { c.Token, c.KeepCredential = e.first, d.keep })
	next := await(e.testEdge, d.kept)
	require.NotEqual(t, lost, next)
	require.Eventually(t, func() bool { return !e.passes(e.first) }, 20*time.Second, time.Millisecond)
	require.False(t, e.passes(lost))
}

// The node goes away at each point of a replacement; what its disk has lets it in.
func TestARotationThatANodeBreaksOffLetsItBackIn(t *testing.T) {
	for what, has := range map[string]func(e *joinedEdge, p *puppet) string{
		"it has not read the offer":       func(e *joinedEdge, _ *puppet) string { return e.first },
		"it has read and not written":     func(e *joinedEdge, p *puppet) string { p.offer(); return e.first },
		"it has written and not said so":  func(_ *joinedEdge, p *puppet) string { return p.offer() },
		"it has said so and is gone":      func(_ *joinedEdge, p *puppet) string { next := p.offer(); p.send(proof(next)); return next },
		"it comes with the offered twice": func(_ *joinedEdge, p *puppet) string { return p.offer() },
	} {
		t.Run(what, func(t *testing.T) {
			e := newJoinedEdge(t)
			p := e.puppet()
			p.register(e.first, takes)
			on := has(e, p)
			for range 2 {
				q := e.puppet()
				m := q.register(on, func(r *runtimev1.Register) { takes(r) }) // the same process again: it fences the former session
				require.NotNil(t, m.GetAccepted(), "%v", m.GetRejected())
				if on == e.first {
					on = q.offer()
					q.send(proof(on))
					require.Eventually(t, func() bool { return !e.passes(e.first) }, 20*time.Second, time.Millisecond)
				}
			}
			require.False(t, e.passes(e.first))
			require.True(t, e.passes(on))
		})
	}
}

// What a node shows that was not offered to it changes nothing.
func TestAFalseProofChangesNothing(t *testing.T) {
	e := newJoinedEdge(t)
	p := e.puppet()
	p.register(e.first, takes)
	next := p.offer()
	for _, false := range []string{"guess", e.first, "x"} {
		p.send(proof(false))
	}
	p.send(drain) // read after them
	await(e.testEdge, e.broker.drained)
	require.True(t, e.passes(e.first))
	require.True(t, e.passes(next))
	require.Contains(t, e.logs.String(), "not its own")
}

// A node that cannot keep credentials is offered none.
func TestANodeWithoutAPlaceForItIsOfferedNothing(t *testing.T) {
	e := newJoinedEdge(t)
	p := e.puppet()
	p.register(e.first, nil)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2), "its pulse beats")
	for range 3 {
		e.clock.Advance(beat)
		seen := e.clock.Now()
		p.send(heartbeat)
		require.NotNil(t, p.receive().GetHeartbeat())
		require.Eventually(t, func() bool { return e.svc.Nodes()[0].LastSeen.Equal(seen) }, 20*time.Second, time.Millisecond)
	}
	joins, nodes := e.Nodes([]string{nodeID})
	require.Empty(t, joins)
	require.False(t, nodes[0].FormerPasses)
}

// A revoked node loses its session at once: the generation is fenced, what runs
// ends as when a node is lost, and it does not come back.
func TestARevocationFencesTheSession(t *testing.T) {
	e := newJoinedEdge(t)
	p := e.puppet()
	p.register(e.first, nil)
	_ = p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take()
	require.NoError(t, h.begin("x"))
	out, err := e.RevokeNode(nodeID)
	require.NoError(t, err)
	require.True(t, out.WasConnected)
	require.Equal(t, []string{"connect gx10 1", "disconnect gx10 1"}, e.broker.history(), "in the same step")
	var f dispatch.Frame
	require.ErrorIs(t, h.Receive(&f), dispatch.ErrLinkLost)
	h.Discard()
	_, err = p.session.Receive()
	require.Error(t, err)
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL, e.puppet().register(e.first, nil).GetRejected().GetReason())
	require.Contains(t, e.logs.String(), "its credential was revoked")
	require.False(t, e.svc.Revoke(nodeID), "nothing is left to end")
	require.False(t, e.svc.Revoke("nobody"))
}

// Who registers while its node is revoked has no session afterwards.
func TestARevocationDuringARegistrationWins(t *testing.T) {
	for range 20 {
		e := newJoinedEdge(t)
		p := e.puppet()
		p.session.RequestHeader().Set("Authorization", "Bearer "+e.first)
		var wg sync.WaitGroup
		gate := make(chan struct{})
		wg.Go(func() {
			<-gate
			_ = p.session.Send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Register{Register: &runtimev1.Register{
				ProtocolVersion: 1, NodeId: nodeID, InstanceId: "instance-puppet",
			}}})
			for {
				if _, err := p.session.Receive(); err != nil {
					return // rejected, or accepted and then ended
				}
			}
		})
		wg.Go(func() {
			<-gate
			_, err := e.RevokeNode(nodeID)
			if err != nil {
				t.Errorf("%v", err)
			}
		})
		close(gate)
		wg.Wait()
		require.Empty(t, e.svc.owners())
	}
}

// A session whose token is the file's is not ended by a revocation of what else its
// node had.
func TestARevocationOfAnotherCredentialEndsNothing(t *testing.T) {
	e := newJoinedEdge(t)
	e.Apply(auth.Credentials{Nodes: []auth.Token{{Name: nodeID, Hash: auth.HashOf(nodeToken)}}})
	e.puppet().register(nodeToken, nil)
	out, err := e.RevokeNode(nodeID)
	require.NoError(t, err)
	require.True(t, out.Credential)
	require.False(t, out.WasConnected)
	require.Len(t, e.broker.history(), 1)
}
