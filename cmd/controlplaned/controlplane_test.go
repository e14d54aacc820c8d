package controlplaned

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetconfig "github.com/iop-dev/iop/fleet/config"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	edgeToken = "edge-token-MARK"
	readToken = "reader-token-MARK"
	envOfRead = "IOP_TEST_FLEET_READ"
	envOfEdge = "IOP_TEST_FLEET_EDGE"
)

// oldEdge offers GetEdgeNodeSnapshot alone, to who has its token.
type oldEdge struct {
	controlv1connect.UnimplementedControlServiceHandler
	refused atomic.Int64
}

func (e *oldEdge) GetEdgeNodeSnapshot(ctx context.Context, _ *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	if info.RequestHeader().Get("Authorization") != "Bearer "+edgeToken {
		e.refused.Add(1)
		return nil, connect.NewError(connect.CodeUnauthenticated, nil)
	}
	return &controlv1.GetEdgeNodeSnapshotResponse{Snapshot: &controlv1.EdgeNodeSnapshot{
		EdgeId: "home", At: timestamppb.Now(), InFlightTotal: 3, Nodes: []*controlv1.NodeSnapshot{{Id: "gx10", Connected: true}},
	}}, nil
}

// run runs a Control Plane over the Edge until the test ends, and returns its URL,
// what stops it, and its log.
func run(t *testing.T, edges, more string, change ...func(*Options)) (url string, stop func() error, log *bytes.Buffer) {
	t.Helper()
	t.Setenv(envOfEdge, edgeToken)
	t.Setenv(envOfRead, readToken)
	config, err := fleetconfig.Parse("controlplane.yaml", fmt.Appendf(nil,
		"controlplane: {listen: '127.0.0.1:0', state_dir: %q, pull_interval_ms: 100, pull_timeout_ms: 5000, stale_after_ms: 60000%s}\nedges: [%s]", t.TempDir(), more, edges))
	require.NoError(t, err)
	log = &bytes.Buffer{}
	o := Options{Config: config, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), Version: "1"}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = func() error {
		cancel()
		err, open := <-ended
		if open {
			close(ended)
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return "http://" + c.Addr(), stop, log
}

func newEdge(t *testing.T) (*oldEdge, string) {
	e := &oldEdge{}
	_, h := controlv1connect.NewControlServiceHandler(e)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return e, fmt.Sprintf("{id: home, url: %q, token_env: %s}", s.URL, envOfEdge)
}

func post(t *testing.T, url, token, method string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/iop.fleet.v1.FleetService/"+method, strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

func TestOnlyReadersRead(t *testing.T) {
	_, edge := newEdge(t)
	url, stop, log := run(t, edge, ", read_tokens: [{name: me, token_env: "+envOfRead+"}]")
	for _, method := range []string{"GetFleet", "GetFleetHistory"} {
		for _, token := range []string{"", "nonsense", edgeToken} {
			status, text := post(t, url, token, method)
			require.Equal(t, http.StatusUnauthorized, status, "%s %q", method, token)
			require.Contains(t, text, `"unauthenticated"`)
		}
		status, text := post(t, url, readToken, method)
		require.Equal(t, http.StatusOK, status, text)
	}
	for path, want := range map[string]int{"/metrics": 404, "/v1/models": 404, "/iop.control.v1.ControlService/GetEdgeNodeSnapshot": 404, "/iop.admin.v1.AdminService/SetOverride": 404, "/dashboard/site.json": 200, "/dashboard": 200, "/": 200, "/dashboardx": 404} {
		res, err := http.Get(url + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, res.StatusCode, path)
	}
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, stop())
	require.NotContains(t, log.String(), "MARK")
}

// gRPC's own tools find the service: health is for everybody, reflection for readers,
// and over HTTP/1.1 it says what is wrong.
func TestK01_HealthAndReflection(t *testing.T) {
	_, edge := newEdge(t)
	url, stop, _ := run(t, edge, ", read_tokens: [{name: me, token_env: "+envOfRead+"}]")
	for service, want := range map[string]string{"": "SERVING_STATUS_SERVING", fleetv1connect.FleetServiceName: "SERVING_STATUS_SERVING", "iop.control.v1.ControlService": "not_found"} {
		res, err := http.Post(url+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader(`{"service": "`+service+`"}`))
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		require.Contains(t, string(text), want)
	}
	const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	res, err := http.Post(url+reflection, "application/connect+json", strings.NewReader(""))
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	require.Equal(t, http.StatusHTTPVersionNotSupported, res.StatusCode)
	require.Contains(t, string(text), "needs HTTP/2")
	http.DefaultClient.CloseIdleConnections()

	h2c := &http.Transport{Protocols: new(http.Protocols)}
	h2c.Protocols.SetUnencryptedHTTP2(true)
	defer h2c.CloseIdleConnections()
	for token, want := range map[string]connect.Code{"": connect.CodeUnauthenticated, edgeToken: connect.CodeUnauthenticated, readToken: 0} {
		stream := grpcreflect.NewClient(&http.Client{Transport: h2c}, url, connect.WithGRPC()).NewStream(
			t.Context(), grpcreflect.WithRequestHeaders(http.Header{"Authorization": {"Bearer " + token}}))
		services, err := stream.ListServices()
		if want != 0 {
			require.Equal(t, want, connect.CodeOf(err), "%q: %v", token, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, []protoreflect.FullName{fleetv1connect.FleetServiceName}, services)
		}
		_, _ = stream.Close() // the server's word is read
	}
	require.NoError(t, stop())
}

// An Edge that offers no history and says little of itself is shown all the same.
func TestAnOldEdgeIsShown(t *testing.T) {
	e, edge := newEdge(t)
	url, _, _ := run(t, edge, "")
	var text string
	require.Eventually(t, func() bool {
		_, text = post(t, url, "", "GetFleet")
		return strings.Contains(text, `"live"`)
	}, 30*time.Second, 20*time.Millisecond)
	var answer struct {
		Fleet struct {
			Totals struct{ EdgesLive, NodesConnected, InFlight any }
			Edges  []struct{ Snapshot struct{ EdgeID string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	require.EqualValues(t, 1, answer.Fleet.Totals.EdgesLive)
	require.EqualValues(t, 1, answer.Fleet.Totals.NodesConnected)
	require.Equal(t, "3", answer.Fleet.Totals.InFlight)
	require.Zero(t, e.refused.Load())
}

func TestWhyAnEdgeCannotBeReadIsSaidInWords(t *testing.T) {
	_, edge := newEdge(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secured := httptest.NewTLSServer(http.NotFoundHandler())
	secured.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	defer secured.Close()
	url, stop, log := run(t, strings.Replace(edge, envOfEdge, envOfRead, 1)+fmt.Sprintf(
		", {id: plain, url: %q, token_env: %s}, {id: tls, url: %q, token_env: %s}, {id: pin, url: %q, token_env: %s, ca_pin: %q}",
		plain.URL, envOfEdge, secured.URL, envOfEdge, strings.Replace(secured.URL, "127.0.0.1", "localhost", 1), envOfEdge, strings.Repeat("a1", 32)), "")
	want := []string{
		"the Edge refuses the token: it must be one of its edge.read_tokens", "what answers has no control API: is the url the Edge's admin_listen?",
		"the Edge's certificate is not trusted: give ca_file or ca_pin", "the Edge's certificate is not the one of ca_pin",
	}
	var text string
	require.Eventually(t, func() bool {
		_, text = post(t, url, "", "GetFleet")
		return strings.Count(text, "lastError") == len(want)
	}, 30*time.Second, 20*time.Millisecond)
	for _, w := range want {
		require.Contains(t, text, w)
	}
	require.NoError(t, stop())
	require.NotContains(t, log.String()+text, "MARK")
}

// Watchers and a hung Edge do not keep the process from ending.
func TestAStopWaitsForNobody(t *testing.T) {
	gone := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	}))
	defer hung.Close()
	defer close(gone)
	url, stop, _ := run(t, fmt.Sprintf("{id: hung, url: %q, token_env: %s}", hung.URL, envOfEdge), "")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	watch, err := fleetv1connect.NewFleetServiceClient(client, url).WatchFleet(t.Context(), &fleetv1.WatchFleetRequest{})
	require.NoError(t, err)
	require.True(t, watch.Receive())
	require.True(t, watch.Msg().GetFull())
	require.Equal(t, "never", watch.Msg().GetEdges()[0].GetState())
	require.NoError(t, stop())
	for watch.Receive() {
		continue
	}
	require.NoError(t, watch.Close())
}
