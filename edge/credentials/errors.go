package credentials

import (
	"errors"
	"fmt"
	"time"
)

// HeldByFileError is a change of what the configuration file holds.
type HeldByFileError struct{ What, Name string }

func (e *HeldByFileError) Error() string {
	return fmt.Sprintf("the %s %q is in the Edge's configuration file: edit the file", e.What, e.Name)
}

// ExistsError is a name that is taken.
type ExistsError struct{ What, Name string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("there is a %s %q already: take another name, or revoke it first", e.What, e.Name)
}

// UnknownError is a name that nothing has.
type UnknownError struct{ What, Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("there is no %s %q", e.What, e.Name) }

// TooManyError is one more than are kept.
type TooManyError struct {
	What string
	Most int
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("there are %d %s already, which is the most: revoke some first", e.Most, e.What)
}

// NotKeptError is a secret that was not given out, since its hash could not be
// written.
type NotKeptError struct{ Err error }

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("nothing was made, for it could not be kept: %v", e.Err)
}

// Unwrap gives the cause.
func (e *NotKeptError) Unwrap() error { return e.Err }

// errNotDue says that a credential was revoked or replaced meanwhile, or that nobody
// is there to have another.
var errNotDue = errors.New("it is not to be replaced any more")

// ErrJoinRefused is all that is said of a join token that is not known, or another
// node's.
var ErrJoinRefused = errors.New("the Edge has no such join token for this node: make one there by \"iop node token create\" with this node's id")

// SpentError is the right node's join token, which serves no more.
type SpentError struct {
	Node    string
	Used    time.Time // zero = it was never used
	Expired time.Time
}

func (e *SpentError) Error() string {
	again := fmt.Sprintf("make another by \"iop node token create %s\"", e.Node)
	if e.Used.IsZero() {
		return fmt.Sprintf("this join token expired at %s: %s", e.Expired.UTC().Format(time.RFC3339), again)
	}
	return fmt.Sprintf("this join token was used at %s, and serves once: if the answer was lost on its way to this machine, %s; if this machine has not used it, somebody else has: \"iop node token revoke %s\"",
		e.Used.UTC().Format(time.RFC3339), again, e.Node)
}
