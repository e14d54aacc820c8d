package rpcerr

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/dispatch"
)

// ErrUnauthenticated says that a call carries no credential for its route.
var ErrUnauthenticated = errors.New("this call needs a bearer token of the right role: Authorization: Bearer <token>")

// ErrNoConfigFile says that this Edge has no file to read again.
var ErrNoConfigFile = errors.New("this Edge was started without a configuration file: there is nothing to reload")

// ErrRequestUnknown says that a request is neither live nor remembered.
var ErrRequestUnknown = errors.New("no such request: it is neither live nor among the last that ended")

// ErrStopping says that this Edge takes no more orders.
var ErrStopping = errors.New("this Edge is stopping")

// NotConfiguredError is a call about a node, provider or Edge that the configuration
// does not have.
type NotConfiguredError struct {
	What    string // "node", "provider" or "Edge"
	Name    string
	Nearest string // a configured name that may be meant; empty = none
}

func (e *NotConfiguredError) Error() string {
	text := fmt.Sprintf("no %s %q is configured", e.What, e.Name)
	if e.Nearest != "" {
		text += fmt.Sprintf(" (did you mean %q?)", e.Nearest)
	}
	return text
}

// errInternal is all that a client learns of an error nobody planned for.
var errInternal = errors.New("internal error; the server's log has the details")

// From gives a domain error its code. It is idempotent, and nil stays nil.
func From(err error) error {
	var (
		known    *connect.Error
		problems configs.Problems
		refused  *config.RefusedChangeError
		unknown  *NotConfiguredError
		noFile   *configs.UnreadableError
		issued   = ofCredentials(err)
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrUnauthenticated):
		return connect.NewError(connect.CodeUnauthenticated, ErrUnauthenticated)
	case errors.Is(err, ErrNoConfigFile):
		return connect.NewError(connect.CodeFailedPrecondition, ErrNoConfigFile)
	case errors.Is(err, ErrRequestUnknown):
		return connect.NewError(connect.CodeNotFound, ErrRequestUnknown)
	case errors.Is(err, dispatch.ErrNotLive):
		return connect.NewError(connect.CodeNotFound, dispatch.ErrNotLive)
	case errors.Is(err, dispatch.ErrAmbiguous):
		return connect.NewError(connect.CodeFailedPrecondition, dispatch.ErrAmbiguous)
	case errors.Is(err, ErrStopping), errors.Is(err, dispatch.ErrStopped):
		return connect.NewError(connect.CodeUnavailable, ErrStopping)
	case errors.As(err, &unknown):
		return connect.NewError(connect.CodeNotFound, unknown)
	case issued != nil:
		return issued
	case errors.As(err, &refused):
		return connect.NewError(connect.CodeInvalidArgument, refused)
	case errors.As(err, &noFile):
		return connect.NewError(connect.CodeFailedPrecondition, noFile)
	case errors.As(err, &problems):
		return connect.NewError(connect.CodeInvalidArgument, problems)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	default:
		return connect.NewError(connect.CodeInternal, errInternal)
	}
}
