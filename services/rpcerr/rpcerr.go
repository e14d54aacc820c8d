// Package rpcerr is the only place where a domain error gets a Connect code.
//
// What it does not know reaches clients as one fixed sentence. Whoever passes such
// an error in logs it in full.
package rpcerr

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/configs"
)

// ErrUnauthenticated says that a call carries no credential for its route.
var ErrUnauthenticated = errors.New("this call needs a bearer token of the right role: Authorization: Bearer <token>")

// ErrNoConfigFile says that this Edge has no file to read again.
var ErrNoConfigFile = errors.New("this Edge was started without a configuration file: there is nothing to reload")

// errInternal is all that a client learns of an error nobody planned for.
var errInternal = errors.New("internal error; the Edge's log has the details")

// From gives a domain error its code. It is idempotent, and nil stays nil.
func From(err error) error {
	var (
		known    *connect.Error
		problems configs.Problems
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
