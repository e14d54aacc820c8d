package inference

import (
	"context"
	"net/http"
	"strings"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// Watcher counts requests. Exactly one of these follows each Received: the
// Dispatcher gets it, Refused, Local.
type Watcher interface {
	// Received says that a request has come.
	Received()
	// Refused says that a request ended before it was dispatched, and why: the
	// FailureReason in lower case, without its prefix.
	Refused(code string)
	// Local says that the service itself has answered.
	Local()
}

// fate is what has become of a request.
type fate struct {
	dispatched bool
	refused    string // empty = answered
}

type fateKey struct{}

// fateOf is never nil.
func fateOf(ctx context.Context) *fate {
	if f, ok := ctx.Value(fateKey{}).(*fate); ok {
		return f
	}
	return &fate{}
}

// Account tells the Watcher of every request to h, which is the whole handler with
// what guards it: requests that are refused before Run are among them.
func (s *Service) Account(h http.Handler) http.Handler {
	if s.Watcher == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Watcher.Received()
		f := &fate{refused: codeOf(inferencev1.FailureReason_FAILURE_REASON_INVALID_API_KEY)}
		defer func() {
			switch {
			case f.dispatched:
			case f.refused != "":
				s.Watcher.Refused(f.refused)
			default:
				s.Watcher.Local()
			}
		}()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fateKey{}, f)))
	})
}

// known notes that a request's key is good. A run that does not begin from here on
// is an invalid request.
func known(r *http.Request) {
	f := fateOf(r.Context())
	f.refused = ""
	if !strings.HasSuffix(r.URL.Path, inferencev1connect.InferenceServiceListModelsProcedure) {
		f.refused = codeOf(inferencev1.FailureReason_FAILURE_REASON_INVALID_REQUEST)
	}
}

func codeOf(r inferencev1.FailureReason) string {
	return strings.ToLower(strings.TrimPrefix(r.String(), "FAILURE_REASON_"))
}
