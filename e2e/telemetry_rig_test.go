package e2e

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/cmd/noded"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	nodeconfig "github.com/iop-dev/iop/node/config"
	"github.com/iop-dev/iop/proto/framecodec"
)

// inside is an Edge and Nodes in this process, where a test reaches what no API tells, and can count what they keep.
type inside struct {
	*rig
	inner *edged.Edge
	log   io.Writer
	life  context.Context
	parts sync.WaitGroup
	// halt stops all and waits for it. It is idempotent.
	halt func()
}

// startInside starts an Edge with the file, which begin sees before it runs, and every node named.
func startInside(t *testing.T, file object, log io.Writer, begin func(*edged.Edge), nodes ...string) *inside {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edge.yaml")
	writeYAML(t, path, file)
	e, err := edged.New(edged.Options{ConfigPath: path, Logger: slog.New(slog.NewJSONHandler(log, nil)), Version: "v9"})
	require.NoError(t, err)
	begin(e)
	s := &inside{inner: e, log: log, rig: &rig{t: t, dir: filepath.Dir(path), edgeYAML: path, url: "http://" + e.Addr()}}
	life, stop := context.WithCancel(context.Background())
	s.life = life
	s.halt = func() { stop(); s.parts.Wait() }
	t.Cleanup(s.halt)
	s.parts.Go(func() { _ = e.Run(life) })
	transport := &http.Transport{MaxIdleConnsPerHost: 200, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	s.control = controlv1connect.NewControlServiceClient(s.client, s.url)
	for _, id := range nodes {
		s.runNode(id)
	}
	s.connected(nodes...)
	return s
}

func (s *inside) runNode(id string) {
	s.t.Helper()
	dir := s.t.TempDir()
	token := filepath.Join(dir, "token")
	require.NoError(s.t, os.WriteFile(token, []byte(nodeToken+id+"\n"), 0o600))
	file := filepath.Join(dir, "node.yaml")
	writeYAML(s.t, file, object{
		"node":      object{"id": id, "edge_url": s.url, "token_file": token},
		"reconnect": object{"interval_sec": 0.2, "max_attempts": 0},
	})
	cfg, err := nodeconfig.Load(file)
	require.NoError(s.t, err)
	node, err := noded.New(noded.Options{Config: cfg, Logger: slog.New(slog.NewJSONHandler(s.log, nil))})
	require.NoError(s.t, err)
	s.parts.Go(func() { _ = node.Run(s.life) })
}

// puppet is a node that does what a test makes it do, and nothing else.
type puppet struct {
	t        *testing.T
	life     context.Context
	sessions *connect.Client[runtimev1.SessionRequest, runtimev1.SessionResponse]
	works    *connect.Client[runtimev1.WorkRequest, runtimev1.WorkResponse]
}

func (r *rig) puppet() *puppet {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DisableCompression: true}
	r.t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	return &puppet{
		t: r.t, life: r.t.Context(),
		sessions: connect.NewClient[runtimev1.SessionRequest, runtimev1.SessionResponse](client, r.url+runtimev1connect.NodeLinkServiceSessionProcedure, plain),
		works:    connect.NewClient[runtimev1.WorkRequest, runtimev1.WorkResponse](client, r.url+runtimev1connect.NodeLinkServiceWorkProcedure, plain),
	}
}

// register opens a session and returns the Edge's first word; leave ends it, without a notice.
func (p *puppet) register(id, token, instance string) (answer *runtimev1.SessionResponse, leave func()) {
	p.t.Helper()
	stream := p.sessions.CallBidiStream(p.life)
	leave = func() { _ = stream.CloseRequest(); _ = stream.CloseResponse() }
	p.t.Cleanup(leave)
	stream.RequestHeader().Set("Authorization", "Bearer "+token)
	require.NoError(p.t, stream.Send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Register{Register: &runtimev1.Register{
		ProtocolVersion: framecodec.ProtocolVersion, NodeId: id, InstanceId: instance, SoftwareVersion: "puppet",
	}}}))
	answer, err := stream.Receive()
	require.NoError(p.t, err)
	return answer, leave
}

// park opens a work stream; what comes is why it was refused or has ended.
func (p *puppet) park(token string, id int) <-chan error {
	p.t.Helper()
	stream := p.works.CallBidiStream(p.life)
	stream.RequestHeader().Set(framecodec.HeaderGenerationToken, token)
	stream.RequestHeader().Set(framecodec.HeaderStreamID, strconv.Itoa(id))
	require.NoError(p.t, stream.Send(nil))
	refused := make(chan error, 1)
	go func() {
		_, err := stream.Receive()
		refused <- err
	}()
	return refused
}
