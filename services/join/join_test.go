package join

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/credentials"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
)

// site is a served JoinService.
type site struct {
	clock  *clockwork.FakeClock
	log    bytes.Buffer
	url    string
	client runtimev1connect.JoinServiceClient
}

func serve(t *testing.T, join func(token, node string) (string, string, error)) *site {
	s := &site{clock: clockwork.NewFakeClock()}
	_, h := New(Config{Join: join, Clock: s.clock, Log: slog.New(slog.NewTextHandler(&s.log, nil)), EdgeID: "home", Software: "v1"}).Handler()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s.url = server.URL
	s.client = runtimev1connect.NewJoinServiceClient(server.Client(), server.URL)
	return s
}

func request(token, node string) *runtimev1.JoinRequest {
	return &runtimev1.JoinRequest{JoinToken: token, NodeId: node, InstanceId: "instance-1", ProtocolVersion: 1, SoftwareVersion: "v2", Os: "linux", Arch: "arm64"}
}

func TestU04_ANodeJoinsByItsToken(t *testing.T) {
	s := serve(t, func(token, node string) (string, string, error) {
		require.Equal(t, "iop-join-x gx10", token+" "+node)
		return "iop-node-secret", "1a2b3c4d", nil
	})
	r, err := s.client.Join(t.Context(), request("iop-join-x", "gx10"))
	require.NoError(t, err)
	require.Equal(t, "iop-node-secret home v1", r.GetCredential()+" "+r.GetEdgeId()+" "+r.GetSoftwareVersion())
	for _, part := range []string{"node joined", "node=gx10", "remote=127.0.0.1:", "instance=instance-1", "version=v2", "os=linux", "arch=arm64", "token_id=1a2b3c4d"} {
		require.Contains(t, s.log.String(), part)
	}
	require.NotContains(t, s.log.String(), "secret")
	require.NotContains(t, s.log.String(), "iop-join-x")
}

// All that is wrong with a token has one code; only its own node learns what.
func TestRefusalsTellNoMoreThanTheyMust(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		err  error
		code connect.Code
		says string
	}{
		{credentials.ErrJoinRefused, connect.CodeUnauthenticated, "no such join token for this node"},
		{&credentials.SpentError{Node: "gx10", Expired: at}, connect.CodeUnauthenticated, "expired at 2026-03-01T12:00:00Z"},
		{&credentials.SpentError{Node: "gx10", Used: at}, connect.CodeUnauthenticated, "was used at 2026-03-01T12:00:00Z"},
		{&credentials.HeldByFileError{What: "token of node", Name: "gx10"}, connect.CodeFailedPrecondition, "edit the file"},
		{&credentials.NotKeptError{Err: errors.New("/var/lib/iop: no space left")}, connect.CodeUnavailable, "cannot keep"},
	} {
		s := serve(t, func(string, string) (string, string, error) { return "", "", c.err })
		_, err := s.client.Join(t.Context(), request("iop-join-x", "gx10"))
		require.Equal(t, c.code, connect.CodeOf(err))
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, err.Error(), "/var/lib")
		require.Contains(t, s.log.String(), "join refused")
		require.NotContains(t, s.log.String(), "iop-join-x")
	}
}

func TestRequestsOutOfBoundsReachNobody(t *testing.T) {
	s := serve(t, func(string, string) (string, string, error) {
		t.Error("it was asked")
		return "", "", nil
	})
	for _, r := range []*runtimev1.JoinRequest{
		request("", "gx10"), request("t", ""), request(strings.Repeat("t", 129), "gx10"),
		{JoinToken: "t", NodeId: "n", InstanceId: "short", ProtocolVersion: 1}, {JoinToken: "t", NodeId: "n", InstanceId: "instance-1"},
	} {
		_, err := s.client.Join(t.Context(), r)
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "%v", err)
		s.clock.Advance(time.Second)
	}
	_, err := s.client.Join(t.Context(), request("t", strings.Repeat("n", 9<<10)))
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
	s.clock.Advance(time.Second)
	packed := runtimev1connect.NewJoinServiceClient(http.DefaultClient, s.url, connect.WithSendGzip())
	_, err = packed.Join(t.Context(), request("t", strings.Repeat("n", 100)))
	require.Equal(t, connect.CodeUnimplemented, connect.CodeOf(err), "nothing is unpacked: %v", err)
	http.DefaultClient.CloseIdleConnections()
}

// One that guesses is slowed down, whatever it sends; the others are served.
func TestAttemptsAreLimited(t *testing.T) {
	asked := 0
	s := serve(t, func(string, string) (string, string, error) { asked++; return "", "", credentials.ErrJoinRefused })
	attempt := func() connect.Code {
		_, err := s.client.Join(t.Context(), request("guess", "gx10"))
		return connect.CodeOf(err)
	}
	for range ownBurst {
		require.Equal(t, connect.CodeUnauthenticated, attempt())
	}
	for range 10 {
		require.Equal(t, connect.CodeResourceExhausted, attempt())
	}
	require.Equal(t, ownBurst, asked)
	res, err := http.Post(s.url+"/iop.runtime.v1.JoinService/Join", "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Equal(t, "1", res.Header.Get("Retry-After"))
	http.DefaultClient.CloseIdleConnections()
	s.clock.Advance(time.Second)
	for range ownRate {
		require.Equal(t, connect.CodeUnauthenticated, attempt())
	}
	require.Equal(t, connect.CodeResourceExhausted, attempt())
}

func TestAllAddressesTogetherAreLimited(t *testing.T) {
	clock := clockwork.NewFakeClock()
	l := newLimiter(clock)
	passed := 0
	for i := range 1000 {
		if l.take(fmt.Sprintf("10.0.%d.%d:1234", i/250, i%250)) {
			passed++
		}
	}
	require.Equal(t, allBurst, passed)
	require.Len(t, l.own, allBurst, "those that were refused are not remembered")
	clock.Advance(time.Second)
	passed = 0
	for i := range 1000 {
		if l.take(fmt.Sprintf("10.1.%d.%d:1234", i/250, i%250)) {
			passed++
		}
	}
	require.Equal(t, allRate, passed)
	clock.Advance(time.Hour)
	require.True(t, l.take("10.0.0.1:1"))
	require.Len(t, l.own, 1, "nobody else is remembered")
	clock.Advance(-time.Minute)
	require.True(t, l.take("10.0.0.1:1"), "a clock that was set back locks nobody out")
}

// A request that does not come whole is not waited for.
func TestASlowRequestEnds(t *testing.T) {
	s := serve(t, func(string, string) (string, string, error) {
		t.Error("it was asked")
		return "", "", nil
	})
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST /iop.runtime.v1.JoinService/Join HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, s.clock.BlockUntilContext(t.Context(), 1))
	s.clock.Advance(bodyTimeout)
	answer, err := io.ReadAll(c) // to the end of the connection
	require.NoError(t, err)
	require.Regexp(t, "^HTTP/1.1 [45]", string(answer))
}

func TestWhatCountsAsOneAddress(t *testing.T) {
	for _, same := range [][2]string{
		{"192.0.2.1:1", "192.0.2.1:2"}, {"[2001:db8::1]:1", "[2001:db8::ffff]:1"}, {"[::ffff:192.0.2.1]:1", "192.0.2.1:9"},
		{"[fe80::1%eth0]:1", "[fe80::1%eth1]:1"}, {"@", "unix"},
	} {
		require.Equal(t, networkOf(same[0]), networkOf(same[1]))
	}
	require.NotEqual(t, networkOf("192.0.2.1:1"), networkOf("192.0.2.2:1"))
	require.NotEqual(t, networkOf("[2001:db8::1]:1"), networkOf("[2001:db8:0:1::1]:1"))
}
