package supervisor

import (
	"errors"
	"fmt"
	"time"
)

// ErrExhausted is matched by the error of a node whose finite number of
// attempts has failed.
var ErrExhausted = errors.New("reconnect attempts exhausted")

// errNotRegistered stands for an attempt that ended without an error and
// without a registration.
var errNotRegistered = errors.New("the connection ended before the edge accepted the registration")

// errSessionEnded stands for a session that the Edge ended without an error.
var errSessionEnded = errors.New("the edge ended the session")

// ExhaustedError says how many attempts failed and how the last one did.
type ExhaustedError struct {
	Attempts int
	Last     error
}

// Error tells the operator what to do about it.
func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("gave up after %d failed attempts to register with the edge (reconnect.max_attempts; 0 = never give up); the last one: %v",
		e.Attempts, e.Last)
}

// Is matches ErrExhausted.
func (e *ExhaustedError) Is(target error) bool { return target == ErrExhausted }

// Unwrap gives the last attempt's error.
func (e *ExhaustedError) Unwrap() error { return e.Last }

// Final is implemented by errors that waiting cannot heal, such as a refused
// credential or a local configuration that cannot work.
type Final interface {
	error
	Final() bool
}

// IsFinal reports whether err is final: the first error in its chain that has
// a say decides.
func IsFinal(err error) bool {
	var final Final
	return errors.As(err, &final) && final.Final()
}

// MarkFinal makes err final, for errors of the program around an attempt, such
// as a token file that cannot be read. It keeps the message.
func MarkFinal(err error) error { return markedFinal{err} }

type markedFinal struct{ error }

func (markedFinal) Final() bool     { return true }
func (e markedFinal) Unwrap() error { return e.error }

// Postponing is implemented by errors that carry the Edge's wish not to be dialed
// again before some time has passed.
type Postponing interface {
	error
	NotBefore() time.Duration
}

// notBefore is the wish in err; 0 = none.
func notBefore(err error) time.Duration {
	var wish Postponing
	if errors.As(err, &wish) {
		return wish.NotBefore()
	}
	return 0
}
