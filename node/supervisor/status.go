package supervisor

import "time"

// State is where a node stands with its Edge.
type State uint8

// The states of a node; see the diagram in the package comment.
const (
	// Connecting is the first attempt.
	Connecting State = iota
	// Connected means registration accepted and session handler ready.
	Connected
	// Retrying is every later attempt and the waits before them.
	Retrying
	// Stopped is final.
	Stopped
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Connected:
		return "connected"
	case Retrying:
		return "retrying"
	case Stopped:
		return "stopped"
	default:
		return "invalid"
	}
}

// Status is a consistent copy of what the supervisor knows.
type Status struct {
	State State
	// Since is when the state was entered.
	Since time.Time
	// Failures counts the attempts that failed one after another; an accepted
	// registration resets it.
	Failures int
	// LastError is how the last attempt or session ended; nil while connected
	// and before the first end.
	LastError error
	// NextAttempt is when the current wait ends; zero while an attempt runs.
	NextAttempt time.Time
}
