package join

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/validate"
	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/credentials"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/services/rpcerr"
)

// maxBytes is the largest request, in bytes, packed or not.
const maxBytes = 8 << 10

// bodyTimeout bounds the time that a request takes to come.
const bodyTimeout = 10 * time.Second

// Config is what a Service works with. All fields are required.
type Config struct {
	// Join exchanges a join token for the credential of its node; id names the token
	// in the log, if it is known.
	Join     func(token, node string) (credential, id string, err error)
	Clock    clockwork.Clock
	Log      *slog.Logger
	EdgeID   string
	Software string
}

// Service implements runtimev1connect.JoinServiceHandler.
type Service struct {
	Config
	limit *limiter
}

// New makes a Service.
func New(c Config) *Service { return &Service{Config: c, limit: newLimiter(c.Clock)} }

type remoteKey struct{}

// Handler is the service's path and HTTP handler. Attempts beyond the limits are
// refused before their body is read.
func (s *Service) Handler() (string, http.Handler) {
	path, h := runtimev1connect.NewJoinServiceHandler(s,
		connect.WithReadMaxBytes(maxBytes), connect.WithInterceptors(validate.NewInterceptor()),
		connect.WithCompression("gzip", nil, nil))
	refuse := connect.NewErrorWriter()
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.limit.take(r.RemoteAddr) {
			s.Log.Debug("join refused", "remote", r.RemoteAddr, "reason", "too many attempts")
			w.Header().Set("Retry-After", "1")
			if !refuse.IsSupported(r) {
				http.Error(w, rpcerr.ErrTooManyJoins.Error(), http.StatusTooManyRequests)
				return
			}
			_ = refuse.Write(w, r, rpcerr.From(rpcerr.ErrTooManyJoins))
			return
		}
		// A frame's head, at most, comes on top of the message.
		r.Body = http.MaxBytesReader(w, r.Body, maxBytes+64)
		defer s.hurry(w)()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), remoteKey{}, r.RemoteAddr)))
	})
}

// hurry ends the reading of a request that has not come within bodyTimeout. The
// caller calls done when it has answered.
func (s *Service) hurry(w http.ResponseWriter) (done func()) {
	var mu sync.Mutex
	over := false
	rc := http.NewResponseController(w)
	guard := s.Clock.AfterFunc(bodyTimeout, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			_ = rc.SetReadDeadline(time.Unix(1, 0)) // a writer without deadlines is a test's
		}
	})
	return func() {
		guard.Stop()
		mu.Lock()
		over = true
		mu.Unlock()
	}
}

// errNotKept is all that a node learns of a disk of the Edge.
var errNotKept = connect.NewError(connect.CodeUnavailable, errors.New("the Edge cannot keep a credential now, its log says why; the join token was not used up"))

// Join exchanges a join token for a credential.
func (s *Service) Join(ctx context.Context, req *runtimev1.JoinRequest) (*runtimev1.JoinResponse, error) {
	remote, _ := ctx.Value(remoteKey{}).(string)
	attrs := []any{"node", req.GetNodeId(), "remote", remote, "instance", req.GetInstanceId(),
		"version", req.GetSoftwareVersion(), "os", req.GetOs(), "arch", req.GetArch()}
	credential, id, err := s.Config.Join(req.GetJoinToken(), req.GetNodeId())
	if err != nil {
		s.Log.Warn("join refused", append(attrs, "token_id", id, "error", err)...)
		var notKept *credentials.NotKeptError
		if errors.As(err, &notKept) {
			return nil, errNotKept
		}
		return nil, rpcerr.From(err)
	}
	s.Log.Info("node joined", append(attrs, "token_id", id)...)
	return &runtimev1.JoinResponse{Credential: credential, EdgeId: s.EdgeID, SoftwareVersion: s.Software}, nil
}
