package inference

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// Run answers one conversation.
func (s *Service) Run(context.Context, *inferencev1.RunRequest, *connect.ServerStream[inferencev1.RunResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New("not served"))
}
