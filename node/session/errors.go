package session

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// Errors of a session that began well.
var (
	// ErrEdgeSilent means that nothing came from the Edge for the heartbeat timeout.
	ErrEdgeSilent = errors.New("nothing was received from the edge for the heartbeat timeout")
	// ErrNoSign means that nothing came from the Edge after a Probe.
	ErrNoSign = errors.New("the machine woke or its network changed, and nothing was received from the edge since")
	// ErrEdgeClosed means that the Edge ended the session in good order.
	ErrEdgeClosed = errors.New("the edge ended the session")
	// ErrStuck means that the Edge does not read what the node sends.
	ErrStuck = errors.New("the edge does not read the session stream")
)

// ErrConnectTimeout means that the Edge took too long to accept or reject.
var ErrConnectTimeout = fmt.Errorf("the edge did not answer the registration within %v", connectTimeout)

// ConfigError is a configuration that no waiting heals.
type ConfigError struct{ err error }

func (e *ConfigError) Error() string { return "node configuration: " + e.err.Error() }

// Unwrap gives the cause.
func (e *ConfigError) Unwrap() error { return e.err }

// Final says that trying again is of no use.
func (*ConfigError) Final() bool { return true }

// RejectedError is a registration that the Edge refused.
type RejectedError struct {
	Reason  runtimev1.RejectReason
	Message string // from the Edge, one sentence
}

func (e *RejectedError) Error() string {
	reason := strings.ToLower(strings.TrimPrefix(e.Reason.String(), "REJECT_REASON_"))
	return fmt.Sprintf("the edge rejected the registration (%s): %s", strings.ReplaceAll(reason, "_", " "), e.Message)
}

// Final says whether trying again is of no use: only for a bad credential. A
// reason of a later version counts as one that heals.
func (e *RejectedError) Final() bool {
	return e.Reason == runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL
}

// EdgeDrainingError is a session that ended because the Edge stops.
type EdgeDrainingError struct {
	// RetryAfter is when the Edge asks to be dialed again.
	RetryAfter time.Duration
}

func (e *EdgeDrainingError) Error() string {
	return fmt.Sprintf("the edge is stopping; it asks to come back after %v", e.RetryAfter)
}

// NotBefore is RetryAfter, for whoever paces the attempts.
func (e *EdgeDrainingError) NotBefore() time.Duration { return e.RetryAfter }

// NotHTTP2Error is an EdgeURL that leads to something that does not speak HTTP/2.
type NotHTTP2Error struct {
	URL string
	Err error
}

func (e *NotHTTP2Error) Error() string {
	return fmt.Sprintf("%s did not answer in HTTP/2, which node connections need: is this the edge's node listener "+
		"(edge.node_listen), with https if it has TLS and http if not, and no HTTP/1.1 proxy between? (%v)", e.URL, e.Err)
}

// Unwrap gives the transport's error.
func (e *NotHTTP2Error) Unwrap() error { return e.Err }

// explain makes the error of a dial or registration say what to do.
func (s *session) explain(err error) error {
	plain := strings.HasPrefix(strings.ToLower(s.cfg.EdgeURL), "http:")
	if plain && s.dialer.dialed.Load() && !s.dialer.settled.Load() {
		return &NotHTTP2Error{URL: s.cfg.EdgeURL, Err: err}
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("register with %s: %w: name the edge's certificate, or its authority's, by node.ca_file, or its SHA-256 by node.ca_pin", s.cfg.EdgeURL, err)
	}
	text := err.Error()
	for _, sign := range []string{
		"no application protocol",                   // TLS without h2 in ALPN
		"unexpected ALPN protocol",                  // likewise
		"malformed HTTP response",                   // likewise: spoken to in HTTP/1.1
		"first record does not look like a TLS",     // a plain listener
		"server gave HTTP response to HTTPS client", // likewise
		"bidi streams require at least HTTP/2",      // negotiated down
		"HTTP Version Not Supported",                // a proxy passed it on as HTTP/1.1
	} {
		if strings.Contains(text, sign) {
			return &NotHTTP2Error{URL: s.cfg.EdgeURL, Err: err}
		}
	}
	if strings.Contains(text, "HTTP status ") { // not Connect's answer: none of ours
		return fmt.Errorf("register with %s: %w: no edge takes nodes there: is this the edge's node listener (edge.node_listen), "+
			"and does a proxy between, if there is one, pass everything on to it?", s.cfg.EdgeURL, err)
	}
	return fmt.Errorf("register with %s: %w", s.cfg.EdgeURL, err)
}
