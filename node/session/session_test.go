package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/proto/framecodec"
)

func TestANodeRegistersAndParksItsStreams(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r, register := e.start(echo)
	require.Equal(t, "gx10", register.GetNodeId())
	require.Equal(t, "instance-1", register.GetInstanceId())
	require.EqualValues(t, framecodec.ProtocolVersion, register.GetProtocolVersion())
	require.NotEmpty(t, register.GetOs())
	require.Equal(t, "Bearer secret-token", r.session.RequestHeader().Get("Authorization"))
	require.Empty(t, r.session.RequestHeader().Get("Connect-Accept-Encoding"), "compression is declined")
	r.send(accept())
	require.Equal(t, "vllm", await(e, r.providers.applied)[0].GetId())
	await(e, r.ready)

	ids := map[uint32]bool{}
	var last *edgeWork
	for range framecodec.InitialStreams {
		last = await(e, e.works)
		ids[streamID(t, last)] = true
	}
	require.Len(t, ids, framecodec.InitialStreams)
	for number := range uint64(3) {
		require.NoError(t, last.Send(request(number+1, "hello", true)))
		answer, err := last.Receive()
		require.NoError(t, err)
		require.Equal(t, number+1, answer.GetRequestNumber())
		require.EqualValues(t, 200, answer.GetHead().GetStatus())
		require.Equal(t, "hello", string(answer.GetBody()))
		require.True(t, answer.GetEnd())
	}
	r.send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_WorkStreams{WorkStreams: &runtimev1.WorkStreams{Total: 7}}})
	for range 3 {
		ids[streamID(t, await(e, e.works))] = true
	}
	require.Len(t, ids, 7)
}

func TestRejectionsAreTyped(t *testing.T) {
	for reason, final := range map[runtimev1.RejectReason]bool{
		runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL:  true,
		runtimev1.RejectReason_REJECT_REASON_UNKNOWN_NODE:    false,
		runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER: false,
		runtimev1.RejectReason_REJECT_REASON_VERSION_SKEW:    false,
		runtimev1.RejectReason_REJECT_REASON_DRAINING:        false,
		runtimev1.RejectReason(99):                           false, // of a later version
	} {
		e, _ := newPuppetEdge(t, false)
		r, _ := e.start(mustNotRun(t))
		r.send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Rejected{Rejected: &runtimev1.Rejected{Reason: reason, Message: "because"}}})
		err := await(e, r.done)
		var rejected *RejectedError
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, reason, rejected.Reason)
		require.Equal(t, final, rejected.Final())
		require.ErrorContains(t, err, "because")
	}
}

func TestAnEdgeOfAnUnknownVersionIsLeft(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r, _ := e.start(mustNotRun(t))
	m := accept()
	m.GetAccepted().ProtocolVersion = framecodec.ProtocolVersion + 1
	r.send(m)
	var rejected *RejectedError
	require.ErrorAs(t, await(e, r.done), &rejected)
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_VERSION_SKEW, rejected.Reason)
}

func TestACancelThatOvertakesItsRequestAnswersNeverOpened(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	ran := make(chan string, 10)
	r := e.connect(func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		ran <- string(body)
		return echo(ctx, begin, body, out)
	})
	w := await(e, e.works)
	id := streamID(t, w)
	r.send(cancelMessage(id, 2))
	require.True(t, r.seen(id, 0))          // the cancel has been handled
	for _, number := range []uint64{1, 2} { // the highest cancelled number covers those below
		require.NoError(t, w.Send(request(number, "late", true)))
		answer, err := w.Receive()
		require.NoError(t, err)
		require.Equal(t, runtimev1.FailureCode_FAILURE_CODE_NEVER_OPENED, answer.GetFailure().GetCode())
	}
	require.NoError(t, w.Send(request(3, "next", true)))
	answer, err := w.Receive()
	require.NoError(t, err)
	require.Equal(t, "next", string(answer.GetBody()))
	require.Equal(t, "next", await(e, ran))
	require.Empty(t, ran)
}

func TestACancelEndsTheRunningRequestOnly(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	started := make(chan struct{})
	r := e.connect(func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		started <- struct{}{}
		<-ctx.Done()
		return out.Frame(&provider.Frame{Failure: &runtimev1.Failure{Code: runtimev1.FailureCode_FAILURE_CODE_CANCELLED}})
	})
	one, two := await(e, e.works), await(e, e.works)
	require.NoError(t, one.Send(request(1, "a", true)))
	require.NoError(t, two.Send(request(1, "b", true)))
	await(e, started)
	await(e, started)
	r.send(cancelMessage(streamID(t, one), 1))
	answer, err := one.Receive()
	require.NoError(t, err)
	require.Equal(t, runtimev1.FailureCode_FAILURE_CODE_CANCELLED, answer.GetFailure().GetCode())

	// A cancel of a request that is over does not hit the next one.
	require.NoError(t, one.Send(request(2, "c", true)))
	await(e, started)
	r.send(cancelMessage(streamID(t, one), 1))
	require.True(t, r.seen(streamID(t, one), 2))
	r.send(cancelMessage(streamID(t, two), 1))
	_, err = two.Receive()
	require.NoError(t, err)
	r.send(cancelMessage(streamID(t, one), 2))
	answer, err = one.Receive()
	require.NoError(t, err)
	require.EqualValues(t, 2, answer.GetRequestNumber())
}

func TestAQueryTellsWhatWasSeenAndRefusesTheRest(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r := e.connect(echo)
	w := await(e, e.works)
	id := streamID(t, w)
	require.NoError(t, w.Send(request(1, "x", true)))
	_, err := w.Receive()
	require.NoError(t, err)
	require.True(t, r.seen(id, 1))
	r.send(queryMessage(id, 2))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3)) // heartbeat, timeout, the answer kept back
	e.clock.Advance(unseenPatience)
	result := r.receive().GetQueryResult()
	require.EqualValues(t, 2, result.GetRequestNumber())
	require.False(t, result.GetSeen())
	require.NoError(t, w.Send(request(2, "came after all", true)))
	answer, err := w.Receive()
	require.NoError(t, err)
	require.Equal(t, runtimev1.FailureCode_FAILURE_CODE_NEVER_OPENED, answer.GetFailure().GetCode())
	require.True(t, r.seen(99, 1), "of an unknown stream nothing is claimed")
}

// A node that was stopped may read the Query before the request that lies in
// another socket: the request is not burnt.
func TestCase_G04_AQueryThatIsReadBeforeItsRequestBurnsNothing(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r := e.connect(echo)
	w := await(e, e.works)
	id := streamID(t, w)
	r.send(queryMessage(id, 1))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3)) // heartbeat, timeout, the answer kept back
	e.clock.Advance(unseenPatience - 1)
	require.NoError(t, w.Send(request(1, "read late", true)))
	answer, err := w.Receive()
	require.NoError(t, err)
	require.Equal(t, "read late", string(answer.GetBody()))
	e.clock.Advance(1)
	result := r.receive().GetQueryResult()
	require.EqualValues(t, 1, result.GetRequestNumber())
	require.True(t, result.GetSeen())
}

// On a slow path a request may lie behind the bodies of others for longer than
// the node's patience: it is not burnt while those come in, and told when they end.
func TestAQueryIsKeptBackWhileBodiesComeIn(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r := e.connect(echo)
	w, other := await(e, e.works), await(e, e.works)
	id := streamID(t, w)
	body := strings.Repeat("b", 2*underWay)
	bring := func(number uint64) {
		require.NoError(t, other.Send(request(number, body, true)))
		_, err := other.Receive()
		require.NoError(t, err)
	}
	r.send(queryMessage(id, 1))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3)) // heartbeat, timeout, the answer kept back
	for n := range uint64(3) {
		bring(n + 1)
		e.clock.Advance(unseenPatience)
		require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3), "kept back further")
	}
	require.NoError(t, w.Send(request(1, "read late", true)))
	answer, err := w.Receive()
	require.NoError(t, err)
	require.Equal(t, "read late", string(answer.GetBody()))
	require.True(t, r.receive().GetQueryResult().GetSeen())

	r.send(queryMessage(id, 2))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 4)) // and the former timer, which finds its question answered
	bring(4)
	e.clock.Advance(unseenPatience)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3), "kept back further")
	e.clock.Advance(unseenPatience)
	require.False(t, r.receive().GetQueryResult().GetSeen(), "nothing comes any more")
}

// S12: a node that was stopped for about the heartbeat timeout reads what the Edge
// has sent meanwhile before it calls the Edge silent; once.
func TestCase_G04_ANodeThatWasStoppedListensBeforeItCallsTheEdgeSilent(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r := e.connect(mustNotRun(t))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(15*time.Second + stopped + 1) // in one leap
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2), "it listens on")
	r.send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Heartbeat{Heartbeat: &runtimev1.Heartbeat{}}})
	r.send(queryMessage(99, 1))
	for r.receive().GetQueryResult() == nil { // what lay in the socket is read, after the heartbeats
	}
	for range 2 { // 10 s since
		e.clock.Advance(5 * time.Second)
		require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	}
	require.Empty(t, r.done)
	e.clock.Advance(20 * time.Second) // another leap, and now nothing comes
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	require.Empty(t, r.done)
	e.clock.Advance(5 * time.Second)
	require.ErrorIs(t, await(e, r.done), ErrEdgeSilent)
}

func TestTheEndOfAStreamCancelsItsRequest(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	started, ended := make(chan struct{}), make(chan struct{})
	r := e.connect(func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	w := await(e, e.works)
	for streamID(t, w) != 1 {
		w = await(e, e.works)
	}
	require.NoError(t, w.Send(request(1, "x", true)))
	await(e, started)
	close(e.endFirst["1"])
	await(e, ended)
	require.True(t, r.seen(1, 1), "it was seen, though its stream is gone")
	require.False(t, r.seen(1, 2))
}

func TestLocalShutdownCancelsWhatRuns(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	started, ended := make(chan struct{}), make(chan struct{})
	r := e.connect(func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	require.NoError(t, await(e, e.works).Send(request(1, "x", true)))
	await(e, started)
	r.stop() // no grace
	await(e, ended)
	require.NoError(t, await(e, r.done))
}

func TestABrokenProtocolEndsTheStreamNotTheSession(t *testing.T) {
	for name, frames := range map[string][]*runtimev1.WorkResponse{
		"no begin":            {{RequestNumber: 1, Body: []byte("x"), End: true}},
		"number used before":  {request(1, "x", true), request(1, "x", true)},
		"begin within":        {request(1, "xx", false), request(2, "x", true)},
		"another one's frame": {request(1, "xx", false), {RequestNumber: 2, Body: []byte("x"), End: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newPuppetEdge(t, false)
			r := e.connect(echo)
			w := await(e, e.works)
			for _, f := range frames {
				require.NoError(t, w.Send(f))
			}
			var err error
			for err == nil {
				_, err = w.Receive()
			}
			require.True(t, r.seen(99, 1), "the session lives")
			for range framecodec.InitialStreams - 1 {
				await(e, e.works)
			}
			require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3)) // heartbeat, timeout, hold-off
			e.clock.Advance(firstHoldOff)
			next := await(e, e.works) // in place of the lost one
			require.NoError(t, next.Send(request(1, "on", true)))
			answer, err := next.Receive()
			require.NoError(t, err)
			require.Equal(t, "on", string(answer.GetBody()))
		})
	}
}

func TestASilentEdgeIsLeftExactlyAtTheTimeout(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	started := make(chan struct{})
	r := e.connect(func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	w := await(e, e.works)
	require.NoError(t, w.Send(request(1, "x", true)))
	await(e, started)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(5 * time.Second)
	require.NotNil(t, r.receive().GetHeartbeat())
	r.send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Heartbeat{Heartbeat: &runtimev1.Heartbeat{}}})
	require.True(t, r.seen(99, 1)) // received at 5 s
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(15*time.Second - 1)
	require.NotNil(t, r.receive().GetHeartbeat(), "alive one nanosecond before")
	require.Empty(t, r.done)
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2))
	e.clock.Advance(1)
	require.ErrorIs(t, await(e, r.done), ErrEdgeSilent)
}

func TestRunWaitsForRequestsToLetGoButNotForEver(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	started, cancelled, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := e.connect(func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		<-ctx.Done()
		close(cancelled)
		<-release // the provider does not let go
		return nil
	})
	defer close(release)
	w := await(e, e.works)
	require.NoError(t, w.Send(request(1, "x", true)))
	await(e, started)
	r.stop()
	await(e, cancelled)
	require.Empty(t, r.done, "it waits for them")
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 1))
	for len(r.done) == 0 && e.ctx.Err() == nil { // the wait may not have begun yet
		e.clock.Advance(lingerLimit)
	}
	require.NoError(t, await(e, r.done))
}

func TestLocalShutdownEndsARegistrationInProgress(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r, _ := e.start(mustNotRun(t))
	r.stop()
	require.NoError(t, await(e, r.done))
}

func TestARegistrationThatIsNotAnsweredIsGivenUp(t *testing.T) {
	e, _ := newPuppetEdge(t, false)
	r, _ := e.start(mustNotRun(t))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 1))
	e.clock.Advance(connectTimeout)
	require.ErrorIs(t, await(e, r.done), ErrConnectTimeout)
}

func TestHTTPSWithTheEdgesOwnRoots(t *testing.T) {
	e, server := newPuppetEdge(t, true)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig
	r := e.connect(echo, func(c *Config) { c.TLS = roots })
	w := await(e, e.works)
	require.NoError(t, w.Send(request(1, "over TLS", true)))
	answer, err := w.Receive()
	require.NoError(t, err)
	require.Equal(t, "over TLS", string(answer.GetBody()))
	r.stop()
	require.NoError(t, await(e, r.done))

	err = Run(e.ctx, r.config(e, func(c *Config) { c.TLS = &tls.Config{RootCAs: x509.NewCertPool()} }))
	for _, want := range []string{"unknown authority", "node.ca_file", "node.ca_pin"} {
		require.ErrorContains(t, err, want)
	}
}

func TestCase_K01_AnHTTP1EdgeURLIsExplained(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler()) // without h2
	defer secure.Close()
	_, port, err := net.SplitHostPort(plain.Listener.Addr().String())
	require.NoError(t, err)
	r := &running{providers: &testProviders{}}
	for name, url := range map[string]string{
		"HTTP/1.1 server":            plain.URL,
		"HTTP/1.1 server over TLS":   secure.URL,
		"https to a plain listener":  "https://127.0.0.1:" + port,
		"http to a TLS listener":     "http://" + secure.Listener.Addr().String(),
		"trailing slash is harmless": plain.URL + "/",
	} {
		t.Run(name, func(t *testing.T) {
			e := &puppetEdge{t: t, url: url, clock: clockwork.NewFakeClock()}
			err := Run(context.Background(), r.config(e, func(c *Config) {
				c.TLS = secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			}))
			var not *NotHTTP2Error
			require.ErrorAs(t, err, &not, "%v", err)
			require.Contains(t, err.Error(), url)
		})
	}
}

// Such as the Edge's API listener when edge.node_listen is another, or a proxy.
func TestCase_K01_AnEdgeURLThatServesNoNodesIsExplained(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusFound, http.StatusForbidden, http.StatusBadGateway} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			r := &running{providers: &testProviders{}}
			err := Run(context.Background(), r.config(&puppetEdge{t: t, url: server.URL, clock: clockwork.NewFakeClock()}, nil))
			require.ErrorContains(t, err, strconv.Itoa(status))
			require.ErrorContains(t, err, server.URL)
			require.ErrorContains(t, err, "edge.node_listen")
		})
	}
}

func TestUnusableConfigurationIsFinal(t *testing.T) {
	for _, url := range []string{"", "ftp://x", "edge.local:8484", "http://", "http://a b"} {
		r := &running{providers: &testProviders{}}
		err := Run(context.Background(), r.config(&puppetEdge{url: url, clock: clockwork.NewFakeClock()}, nil))
		var config *ConfigError
		require.ErrorAs(t, err, &config)
		require.True(t, config.Final())
	}
}

func TestNobodyThereIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	r := &running{providers: &testProviders{}}
	err = Run(context.Background(), r.config(&puppetEdge{url: url, clock: clockwork.NewFakeClock()}, nil))
	require.ErrorContains(t, err, "refused")
	require.ErrorContains(t, err, url)
}

func TestAnEnvelopeLeavesInOneRead(t *testing.T) {
	reader, writer := io.Pipe()
	b := &envelopeBody{source: reader}
	payload := bytes.Repeat([]byte("p"), 300)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 {
			_, _ = writer.Write([]byte{0, 0, 0, 1, 44})
			_, _ = writer.Write(payload)
		}
		_ = writer.Close()
	})
	buffer := make([]byte, 16<<10)
	n, err := b.Read(buffer)
	require.NoError(t, err)
	require.Equal(t, 305, n, "prefix and payload, and nothing of the next envelope")
	n, err = b.Read(buffer[:100])
	require.NoError(t, err)
	require.Equal(t, 100, n)
	n, err = b.Read(buffer)
	require.NoError(t, err)
	require.Equal(t, 205, n)
	_, err = b.Read(buffer)
	require.True(t, errors.Is(err, io.EOF))
	wg.Wait()
}
