package edgewire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/fleet"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// maxAnswer bounds what an Edge may make the Control Plane hold, in bytes.
const maxAnswer = 16 << 20

// Edge reads one Edge. It has connections of its own.
type Edge struct {
	client    controlv1connect.ControlServiceClient
	token     string
	transport *http.Transport
}

var _ fleet.Reader = (*Edge)(nil)

// New returns a reader of the Edge at url, which has no trailing slash. trust is
// for https.
func New(url, token string, trust *tls.Config) *Edge {
	// No proxy: the environment's is for what lies beyond the site. Idle
	// connections outlast any pause between two pulls but the longest.
	transport := &http.Transport{TLSClientConfig: trust, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	client := &http.Client{
		Transport: transport,
		// A token is for the configured address alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Edge{
		client: controlv1connect.NewControlServiceClient(client, url, connect.WithReadMaxBytes(maxAnswer), connect.WithCodec(careful{})),
		token:  token, transport: transport,
	}
}

// Close ends idle connections.
func (e *Edge) Close() { e.transport.CloseIdleConnections() }

// Snapshot implements fleet.Reader.
func (e *Edge) Snapshot(ctx context.Context) (*controlv1.EdgeNodeSnapshot, error) {
	res, err := e.client.GetEdgeNodeSnapshot(e.bearer(ctx), &controlv1.GetEdgeNodeSnapshotRequest{})
	if err != nil {
		return nil, e.inWords(ctx, err)
	}
	return res.GetSnapshot(), nil
}

// History implements fleet.Reader.
func (e *Edge) History(ctx context.Context) ([]*controlv1.HistoryPoint, error) {
	res, err := e.client.GetHistory(e.bearer(ctx), &controlv1.GetHistoryRequest{})
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return nil, fleet.ErrNotOffered
	}
	if err != nil {
		return nil, e.inWords(ctx, err)
	}
	return res.GetPoints(), nil
}

func (e *Edge) bearer(ctx context.Context) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+e.token)
	return ctx
}

// inWords says what is wrong for whoever runs the fleet.
func (e *Edge) inWords(ctx context.Context, err error) error {
	var dial *net.OpError
	var untrusted *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		return context.DeadlineExceeded
	case errors.Is(err, errPin):
		return errPin
	case errors.Is(err, errParts):
		return errParts
	case errors.Is(err, errTime):
		return errTime
	case errors.As(err, &untrusted):
		return fmt.Errorf("the Edge's certificate is not trusted: give ca_file or ca_pin (%w)", untrusted.Err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("nobody answers: %w", dial.Err)
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return errors.New("the Edge refuses the token: it must be one of its edge.read_tokens")
	case connect.CodeUnimplemented:
		return errors.New("what answers has no control API: is the url the Edge's admin_listen?")
	case connect.CodeResourceExhausted:
		return fmt.Errorf("the Edge's answer is larger than %d bytes", maxAnswer)
	}
	return e.reason(err)
}
