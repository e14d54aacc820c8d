package session

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

func offer(credential string) *runtimev1.SessionResponse {
	return &runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_NextCredential{NextCredential: &runtimev1.NextCredential{Credential: credential}}}
}

// A slow disk holds up nothing of the session; offers that come meanwhile are
// dropped, and the proof follows the write.
func TestU04_ANextCredentialIsShownOnceItIsKept(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	begun, written := make(chan string, 10), make(chan error)
	keep := func(c *Config) {
		c.KeepCredential = func(credential string) error { begun <- credential; return <-written }
	}
	r, register := e.start(echo, keep)
	require.True(t, register.GetTakesCredential())
	r.send(accept())
	await(e, r.ready)
	r.send(offer("iop-node-the-next-one"))
	require.Equal(t, "iop-node-the-next-one", await(e, begun))
	r.send(offer("iop-node-too-soon"))
	require.True(t, r.seen(99, 1), "what came behind it is handled")
	written <- nil
	require.Equal(t, "iop-node-the-next-one", r.receive().GetCredentialTaken().GetCredential())
	require.Empty(t, begun)

	// One that cannot be kept is not shown, and the next one is tried anew.
	for _, err := range []error{errors.New("the disk is full"), nil} {
		require.Eventually(t, func() bool { // the former one has let go
			r.send(offer("iop-node-another"))
			return r.seen(99, 1) && len(begun) > 0
		}, 20*time.Second, time.Millisecond)
		require.Equal(t, "iop-node-another", await(e, begun))
		written <- err
	}
	require.Equal(t, "iop-node-another", r.receive().GetCredentialTaken().GetCredential())
}

func TestANodeWithATokenOfItsOwnTakesNoCredential(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r, register := e.start(echo)
	require.False(t, register.GetTakesCredential())
	r.send(accept())
	await(e, r.ready)
	r.send(offer("iop-node-the-next-one"))
	require.True(t, r.seen(99, 1), "it is passed over")
}
