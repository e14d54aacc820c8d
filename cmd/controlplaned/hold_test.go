package controlplaned

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// heavyEdge tells 4 MiB at each pull.
type heavyEdge struct {
	controlv1connect.UnimplementedControlServiceHandler
}

func (heavyEdge) GetEdgeNodeSnapshot(context.Context, *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	return &controlv1.GetEdgeNodeSnapshotResponse{Snapshot: &controlv1.EdgeNodeSnapshot{
		EdgeId: "home", At: timestamppb.Now(), LastRefreshError: strings.Repeat("x", 4<<20),
	}}, nil
}

// ask sends a call over HTTP/1.1 whose body is length bytes long, as it is given.
func ask(t *testing.T, url, method, kind string, length int, body string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = fmt.Fprintf(c, "POST /iop.fleet.v1.FleetService/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", method, kind, length, body)
	require.NoError(t, err)
	return c
}

// watching reports whether somebody watches the fleet.
func watching() bool {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2) // a buffer takes everything
	return strings.Contains(all.String(), "(*Service).WatchFleet(")
}

// A watcher that never reads is sent away, though its connection stands.
func TestAStuckWatcherIsGivenUp(t *testing.T) {
	_, h := controlv1connect.NewControlServiceHandler(heavyEdge{})
	edge := httptest.NewServer(h)
	defer edge.Close()
	url, _, _ := run(t, fmt.Sprintf("{id: home, url: %q, token_env: %s}", edge.URL, envOfEdge), "", func(o *Options) { o.stuckAfter = 200 * time.Millisecond })
	c := ask(t, url, "WatchFleet", "application/connect+json", 7, "\x00\x00\x00\x00\x02{}")
	first := make([]byte, 1)
	_, err := c.Read(first)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !watching() }, 30*time.Second, 20*time.Millisecond)
}

// A call that is not told whole holds no connection, with a token or without.
func TestABodyThatDoesNotComeEndsTheConnection(t *testing.T) {
	for name, more := range map[string]string{"open": "", "refused": ", read_tokens: [{name: me, token_env: " + envOfRead + "}]"} {
		t.Run(name, func(t *testing.T) {
			_, edge := newEdge(t)
			url, _, _ := run(t, edge, more, func(o *Options) { o.bodyLimit = 100 * time.Millisecond })
			_, err := io.Copy(io.Discard, ask(t, url, "GetFleet", "application/json", 100, "{"))
			require.NoError(t, err, "the connection stands")
		})
	}
}

// The limit is the body's alone: who watches may do so for long.
func TestAWatcherOutlastsTheLimitOfItsBody(t *testing.T) {
	const limit = 100 * time.Millisecond
	_, edge := newEdge(t)
	url, _, _ := run(t, edge, "", func(o *Options) { o.bodyLimit = limit })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/iop.fleet.v1.FleetService/WatchFleet", strings.NewReader("\x00\x00\x00\x00\x02{}"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/connect+json")
	begun := time.Now()
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	for buf := make([]byte, 4096); time.Since(begun) < 10*limit; {
		_, err := res.Body.Read(buf)
		require.NoError(t, err)
	}
}
