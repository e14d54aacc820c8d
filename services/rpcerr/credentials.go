package rpcerr

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/edge/state"
)

// ErrTooManyJoins says that more try to join than have reason to.
var ErrTooManyJoins = errors.New("too many attempts to join: try again in some seconds")

// ofCredentials is From for the errors of secrets that are made and taken away; nil
// = it is none of them.
func ofCredentials(err error) error {
	var (
		held    *credentials.HeldByFileError
		exists  *credentials.ExistsError
		unknown *credentials.UnknownError
		many    *credentials.TooManyError
		notKept *credentials.NotKeptError
		spent   *credentials.SpentError
	)
	switch {
	case errors.As(err, &held):
		return connect.NewError(connect.CodeFailedPrecondition, held)
	case errors.As(err, &exists):
		return connect.NewError(connect.CodeAlreadyExists, exists)
	case errors.As(err, &unknown):
		return connect.NewError(connect.CodeNotFound, unknown)
	case errors.As(err, &many):
		return connect.NewError(connect.CodeResourceExhausted, many)
	case errors.As(err, &notKept):
		return connect.NewError(connect.CodeUnavailable, notKept)
	case errors.Is(err, state.ErrNoCredentialsDir):
		return connect.NewError(connect.CodeFailedPrecondition, state.ErrNoCredentialsDir)
	case errors.Is(err, credentials.ErrJoinRefused):
		return connect.NewError(connect.CodeUnauthenticated, credentials.ErrJoinRefused)
	case errors.As(err, &spent):
		return connect.NewError(connect.CodeUnauthenticated, spent)
	case errors.Is(err, ErrTooManyJoins):
		return connect.NewError(connect.CodeResourceExhausted, ErrTooManyJoins)
	}
	return nil
}
