package edged

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/config"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

const endureToken = "endure-read-token"

const endureYAML = `edge:
  listen: "127.0.0.1:0"
  read_tokens: [{name: r, sha256: "76efbdd3bf3335c07a636367507da2e2acb27ce75bd8fc48ec2494f6c1dbd01f"}]
nodes:
  - id: n
    token_sha256: "511aef1cd40386a145545e71497c17773b01cee947d867079e4c499db71e8321"
    providers: [{id: sim, type: simulator}]
models: [{id: m, providers: [{node: n, provider: sim}]}]
`

// A watch lives for longer than anything on its connection may take: a head, and
// silence between requests.
func TestCase_K10_AWatchOutlivesTheServersLimits(t *testing.T) {
	snap, err := config.Parse("edge.yaml", []byte(endureYAML))
	require.NoError(t, err)
	e, err := New(Options{Snapshot: snap, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	const limit = 500 * time.Millisecond // an update comes every second
	for _, s := range e.servers {
		s.http.ReadHeaderTimeout, s.http.IdleTimeout = limit, limit
		s.listener = unhurried{s.listener.(unhurried).Listener, allowance{head: limit, idle: limit}}
		require.Zero(t, s.http.ReadTimeout)
		require.Zero(t, s.http.WriteTimeout)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(!http2)
		transport.Protocols.SetUnencryptedHTTP2(http2)
		watching, end := context.WithCancel(t.Context())
		calling, call := connect.NewClientContext(watching)
		call.RequestHeader().Set("Authorization", "Bearer "+endureToken)
		watch, err := controlv1connect.NewControlServiceClient(&http.Client{Transport: transport}, "http://"+e.Addr()).
			WatchEdgeNodeSnapshot(calling, &controlv1.WatchEdgeNodeSnapshotRequest{})
		require.NoError(t, err)
		for range 4 { // three seconds
			require.True(t, watch.Receive(), "%v", watch.Err())
		}
		end()
		_ = watch.Close()
		transport.CloseIdleConnections()
	}
	stop()
	require.NoError(t, <-ended)
}
