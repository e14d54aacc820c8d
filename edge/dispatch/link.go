package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// ErrLinkLost is returned by a [Link] or [Stream] whose node connection, or the
// stream itself, has ended.
var ErrLinkLost = errors.New("dispatch: node link lost")

// ErrNoStream is returned by [Link.Take] when no work stream became free in time.
var ErrNoStream = errors.New("dispatch: the node has no work stream ready")

// ErrNeverSeen is returned by a [Stream] whose hand-off stayed silent, or which
// broke, when the node says over its session that it has not seen the request:
// nothing reached a provider.
var ErrNeverSeen = errors.New("dispatch: the node has not seen the request")

// Link reaches the nodes. services/nodelink implements it.
type Link interface {
	// Take returns a parked work stream of the node's connection gen. With none
	// parked it waits for one, for a bounded time: a node opens more on demand
	// (S15). It fails with ErrLinkLost when gen has ended, with ErrNoStream at
	// the end of its patience, or with ctx's error.
	Take(ctx context.Context, node admission.NodeID, gen admission.Generation) (Stream, error)
}

// Stream is one work stream, in the hands of one request at a time. Send and
// Receive are for the request's own goroutine.
type Stream interface {
	// Send writes one frame; a frame with Begin starts the stream's next
	// request. An error means that the link is lost; one that is ErrNeverSeen
	// too, that nothing of the request was sent.
	Send(*RequestFrame) error
	// Receive reads the next frame of the answer into f, replacing what it held;
	// f.Body is valid until the next Receive. An error means that the link is
	// lost before the final frame, or is ErrNeverSeen.
	Receive(f *Frame) error
	// Cancel asks the node to end the request now under way, over the session
	// stream. Any goroutine may call it, any number of times; the final frame
	// still comes.
	Cancel()
	// Park gives the stream back. Call it once, after the final frame.
	Park()
	// Discard ends the stream for good, in place of Park.
	Discard()
}

// Header is one header field.
type Header struct{ Name, Value string }

// Begin starts a request on a provider.
type Begin struct {
	Provider      admission.ProviderID
	Path          string // of the fixed list of endpoints
	ContentLength int    // bytes
	Header        []Header
	IdleTimeout   time.Duration // longest silence after the response head; 0 = none
	TotalTimeout  time.Duration // what is left for the exchange; 0 = no limit
	RequestID     string
	// Target and ContextWindow (tokens; 0 = not stated) are told of a normalized
	// run only: other bodies name their target themselves.
	Target        string
	ContextWindow int
}

// MaxFrameBody is the most body bytes of one request frame.
const MaxFrameBody = 256 << 10

// RequestFrame is one frame of a request. Parts are sent as one run of bytes, at
// most MaxFrameBody in all.
type RequestFrame struct {
	Begin *Begin // first frame only
	Parts [][]byte
	End   bool // last frame
}

// Head is the head of a provider's answer.
type Head struct {
	Status int
	Header []Header
}

// Frame is one frame of an answer. The first has Head, the last End or Failure;
// a short answer is one frame.
type Frame struct {
	Head    *Head
	Body    []byte
	End     bool
	Failure *Failure
	// More says that the next frame is here whole: Receive will not wait, so
	// what the client is owed need not be flushed before it.
	More bool
}

// FailureCode says how a request ended without a whole answer.
type FailureCode uint8

// The failure codes. The first three say that no upstream request was opened.
const (
	NeverOpened FailureCode = iota + 1
	ProviderBusy
	ProviderUnreachable
	ProviderDisconnected
	ProviderTimeout
	Cancelled
)

// String is the code's name in errors and logs.
func (c FailureCode) String() string {
	return [...]string{"", "never_opened", "provider_busy", "provider_unreachable", "provider_disconnected", "provider_timeout", "cancelled"}[c]
}

// neverOpened reports whether the code says that no upstream request was
// opened, so that the request may be admitted again.
func (c FailureCode) neverOpened() bool { return c <= ProviderUnreachable }

// Failure ends a request without a whole answer.
type Failure struct {
	Code    FailureCode
	Message string // one sentence for logs
}
