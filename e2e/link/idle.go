//go:build !windows

package link

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/node/session"
	"github.com/iop-dev/iop/proto/framecodec"
	"github.com/iop-dev/iop/services/nodelink"
)

// Fleet is many idle nodes of one Edge process: real sessions, all in this
// process, so that only the Edge's share is in its memory and CPU.
type Fleet struct {
	Site *Site

	size     int
	life     context.Context
	stop     context.CancelFunc
	sessions sync.WaitGroup
	joined   int
	lost     atomic.Pointer[error]
}

func memberID(i int) string { return fmt.Sprintf("idle-%03d", i) }

// NewFleet starts an Edge that knows size nodes.
func NewFleet(binary string, size int, beat Heartbeat, env ...string) (*Fleet, error) {
	f := &Fleet{size: size}
	f.life, f.stop = context.WithCancel(context.Background())
	nodes := make([]Object, size)
	candidates := make([]string, size)
	for i := range nodes {
		id := memberID(i)
		nodes[i] = Node(id, Object{"id": "p", "type": "openai", "base_url": "http://127.0.0.1:9", "capacity": 1})
		candidates[i] = id + "/p=m"
	}
	var err error
	f.Site, err = StartSite(binary, Setup{Heartbeat: beat, Nodes: nodes, Models: []Object{Model("m", candidates...)}}, env...)
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// Grow connects nodes until there are n.
func (f *Fleet) Grow(n int) error {
	for ; f.joined < min(n, f.size); f.joined++ {
		ready := make(chan struct{})
		id := memberID(f.joined)
		f.sessions.Go(func() {
			log := slog.New(slog.DiscardHandler)
			providers := provider.NewSet(provider.Config{Clock: clockwork.NewRealClock(), Log: log})
			defer providers.Close(context.WithoutCancel(f.life))
			err := session.Run(f.life, session.Config{
				EdgeURL: f.Site.URL(), NodeID: id, InstanceID: "instance-" + id, Token: NodeToken(id), SoftwareVersion: "rig",
				Providers: providers, Clock: clockwork.NewRealClock(), Logger: log,
				OnReady: func() { close(ready) },
			})
			if err != nil {
				f.lost.CompareAndSwap(nil, &err)
			}
		})
		if _, err := Wait(ready, "the session of "+id); err != nil {
			return err
		}
	}
	return f.Err()
}

// Err is why a session of the fleet ended, if one has.
func (f *Fleet) Err() error {
	if err := f.lost.Load(); err != nil {
		return fmt.Errorf("a session of the fleet ended: %w", *err)
	}
	return nil
}

// Close ends the sessions and the Edge.
func (f *Fleet) Close() {
	f.stop()
	f.sessions.Wait()
	f.Site.Close()
}

// ParkedAtEdge is an Edge process with one node of ours that parks as many work
// streams as it is told.
type ParkedAtEdge struct {
	*Fleet
	works  *connect.Client[runtimev1.WorkRequest, runtimev1.WorkResponse]
	token  string
	close  []func()
	parked int
}

// NewParkedAtEdge starts the Edge and registers the node.
func NewParkedAtEdge(binary string, env ...string) (*ParkedAtEdge, error) {
	// The Edge ends streams that stay idle over a heartbeat, and a node that says
	// nothing for a timeout: later than anybody measures.
	f, err := NewFleet(binary, 1, Heartbeat{10 * time.Minute, 30 * time.Minute}, env...)
	if err != nil {
		return nil, err
	}
	p := &ParkedAtEdge{Fleet: f}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DisableCompression: true}
	p.close = append(p.close, transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	identity := connect.WithAcceptCompression("gzip", nil, nil)
	sessions := connect.NewClient[runtimev1.SessionRequest, runtimev1.SessionResponse](client,
		f.Site.URL()+runtimev1connect.NodeLinkServiceSessionProcedure, identity)
	p.works = connect.NewClient[runtimev1.WorkRequest, runtimev1.WorkResponse](client,
		f.Site.URL()+runtimev1connect.NodeLinkServiceWorkProcedure, identity)

	stream := sessions.CallBidiStream(f.life)
	stream.RequestHeader().Set("Authorization", "Bearer "+NodeToken(memberID(0)))
	p.close = append(p.close, func() { _ = stream.CloseRequest(); _ = stream.CloseResponse() })
	err = stream.Send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Register{Register: &runtimev1.Register{
		ProtocolVersion: framecodec.ProtocolVersion, NodeId: memberID(0), InstanceId: "instance-parked", SoftwareVersion: "rig",
	}}})
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("register: %w", err)
	}
	answer, err := stream.Receive()
	if err != nil || answer.GetAccepted() == nil {
		p.Close()
		return nil, fmt.Errorf("register: answered %v, %w", answer, err)
	}
	p.token = answer.GetAccepted().GetGenerationToken()
	return p, nil
}

// Grow parks streams until there are n.
func (p *ParkedAtEdge) Grow(n int) error {
	for ; p.parked < n; p.parked++ {
		stream := p.works.CallBidiStream(p.life)
		stream.RequestHeader().Set(framecodec.HeaderGenerationToken, p.token)
		stream.RequestHeader().Set(framecodec.HeaderStreamID, strconv.Itoa(p.parked+1))
		if err := stream.Send(nil); err != nil {
			return fmt.Errorf("open a work stream: %w", err)
		}
		// The response's head says that the stream is parked.
		if stream.ResponseHeader().Get("Content-Type") == "" {
			return fmt.Errorf("work stream %d was refused", p.parked+1)
		}
		p.close = append(p.close, func() { _ = stream.CloseRequest(); _ = stream.CloseResponse() })
	}
	return nil
}

// Close ends the streams and the Edge.
func (p *ParkedAtEdge) Close() {
	p.stop()
	for i := len(p.close) - 1; i >= 0; i-- {
		p.close[i]()
	}
	p.Fleet.Close()
}

// ParkedAtNode is a Node process at an Edge of ours, which asks for as many work
// streams as it is told.
type ParkedAtNode struct {
	Node *Process

	dir    string
	server *httptest.Server
	over   chan struct{}
	wish   chan int
	opened chan struct{}
	parked int
}

// NewParkedAtNode starts the node.
func NewParkedAtNode(binary string, env ...string) (*ParkedAtNode, error) {
	dir, err := os.MkdirTemp("", "iop-link-")
	if err != nil {
		return nil, err
	}
	p := &ParkedAtNode{dir: dir, over: make(chan struct{}), wish: make(chan int), opened: make(chan struct{}, 10_000)}
	_, handler := runtimev1connect.NewNodeLinkServiceHandler(p)
	p.server = httptest.NewUnstartedServer(handler)
	p.server.Config.HTTP2 = nodelink.ServerHTTP2Config()
	p.server.Config.Protocols = new(http.Protocols)
	p.server.Config.Protocols.SetUnencryptedHTTP2(true)
	p.server.Start()
	if p.Node, err = StartNode(binary, dir, "parked", p.server.URL, env...); err != nil {
		p.Close()
		return nil, err
	}
	return p, p.arrived(framecodec.InitialStreams)
}

// Session implements the Edge's side of the node link.
func (p *ParkedAtNode) Session(_ context.Context, s *connect.BidiStream[runtimev1.SessionRequest, runtimev1.SessionResponse]) error {
	if _, err := s.Receive(); err != nil {
		return err
	}
	const hour = 3_600_000
	err := s.Send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Accepted{Accepted: &runtimev1.Accepted{
		GenerationToken: "generation-token", ProtocolVersion: framecodec.ProtocolVersion,
		HeartbeatIntervalMs: hour, HeartbeatTimeoutMs: 2 * hour, BodyLimitBytes: 1 << 20, Providers: &runtimev1.ProviderSet{},
	}}})
	for err == nil {
		select {
		case n := <-p.wish:
			err = s.Send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_WorkStreams{
				WorkStreams: &runtimev1.WorkStreams{Total: uint32(n)},
			}})
		case <-p.over:
			return nil
		}
	}
	return err
}

// Work implements the Edge's side of a work stream.
func (p *ParkedAtNode) Work(_ context.Context, s *connect.BidiStream[runtimev1.WorkRequest, runtimev1.WorkResponse]) error {
	if err := s.Send(nil); err != nil {
		return err
	}
	p.opened <- struct{}{}
	<-p.over
	return nil
}

// arrived waits for n more streams.
func (p *ParkedAtNode) arrived(n int) error {
	for range n {
		if _, err := Wait(p.opened, "a work stream of the node"); err != nil {
			return err
		}
	}
	p.parked += n
	return nil
}

// Grow lets the node park streams until there are n.
func (p *ParkedAtNode) Grow(n int) error {
	if n <= p.parked {
		return nil
	}
	p.wish <- n
	return p.arrived(n - p.parked)
}

// Close ends the node.
func (p *ParkedAtNode) Close() {
	if p.Node != nil {
		p.Node.Kill()
	}
	close(p.over)
	p.server.CloseClientConnections()
	p.server.Close()
	os.RemoveAll(p.dir)
}
