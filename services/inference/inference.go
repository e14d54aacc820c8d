package inference

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/intake"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// Model is one entry of the catalogue.
type Model struct {
	ID            string
	ContextWindow int // tokens; 0 = not stated
	Available     bool
}

// Target is what a run needs to know of a model.
type Target struct {
	Group         admission.GroupKey
	Targets       []string // served ones, under which the input estimate is calibrated
	ContextWindow int      // tokens; 0 = not stated
}

// Settings are what a refresh may change.
type Settings struct {
	// LongThreshold in tokens: an input estimate from there on is a long request.
	LongThreshold int
	// BodyLimit of a request in bytes.
	BodyLimit int64
	// IdleTimeout is the longest silence of the provider after its head, and of a
	// client that reads nothing; 0 = none.
	IdleTimeout time.Duration
	// TotalTimeout of a run, waiting included; 0 = none.
	TotalTimeout time.Duration
}

// Keys knows the API keys. *auth.Keyring is one.
type Keys interface {
	// Open reports whether clients need no key.
	Open() bool
	// APIKey finds the key that a client presents.
	APIKey(secret string) (*auth.APIKey, bool)
}

// Dispatcher carries one request. *dispatch.Dispatcher is one.
type Dispatcher interface {
	Do(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error
}

// Service implements inferencev1connect.InferenceServiceHandler. All functions
// answer for the configuration in force.
type Service struct {
	// Models returns the catalogue in the order of the configuration.
	Models func() []Model
	// Target finds a model by its external id.
	Target   func(id string) (Target, bool)
	Settings func() Settings
	// Simulated reports whether a provider is IOP's own simulator.
	Simulated func(admission.ResourceKey) bool
	Keys      Keys
	// Intake is the memory for requests that are still on their way; nil = as much as they want.
	Intake     *intake.Budget
	Dispatcher Dispatcher
	// Calibration is the one that the OpenAI-compatible surface has, too.
	Calibration *estimate.Calibration
	Log         *slog.Logger
	// Watcher learns of every request; nil = nobody.
	Watcher Watcher

	draining atomic.Bool
}

// Drain refuses new runs from now on. It cannot be undone.
func (s *Service) Drain() { s.draining.Store(true) }

// Draining reports whether Drain was called.
func (s *Service) Draining() bool { return s.draining.Load() }

// ListModels returns every model id that the caller's key may name.
func (s *Service) ListModels(ctx context.Context, _ *inferencev1.ListModelsRequest) (*inferencev1.ListModelsResponse, error) {
	res := &inferencev1.ListModelsResponse{}
	key := s.key(ctx)
	for _, m := range s.Models() {
		if key == nil || key.Allows(m.ID) {
			res.Models = append(res.Models, &inferencev1.Model{Id: m.ID, ContextWindowTokens: uint64(m.ContextWindow), Available: m.Available})
		}
	}
	return res, nil
}

// key is the caller's API key; nil where none is needed, or none is valid.
func (s *Service) key(ctx context.Context) *auth.APIKey {
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok || s.Keys.Open() {
		return nil
	}
	key, _ := s.Keys.APIKey(auth.ClientSecret(call.RequestHeader()))
	return key
}
