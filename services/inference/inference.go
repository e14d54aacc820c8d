// Package inference serves iop.inference.v1: the typed API for clients that hold
// an API key. It translates; what a model is, and whether it can be served, is
// told to it.
package inference

import (
	"context"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// Model is one entry of the catalogue.
type Model struct {
	ID            string
	ContextWindow int // tokens; 0 = not stated
	Available     bool
}

// Service implements inferencev1connect.InferenceServiceHandler.
type Service struct {
	// Models returns the catalogue in the order of the configuration.
	Models func() []Model
}

// ListModels returns every callable model id.
func (s *Service) ListModels(context.Context, *inferencev1.ListModelsRequest) (*inferencev1.ListModelsResponse, error) {
	res := &inferencev1.ListModelsResponse{}
	for _, m := range s.Models() {
		res.Models = append(res.Models, &inferencev1.Model{Id: m.ID, ContextWindowTokens: uint64(m.ContextWindow), Available: m.Available})
	}
	return res, nil
}
