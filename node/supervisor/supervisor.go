package supervisor

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// Attempt is one dial, registration and session until its end. It calls ready
// when the registration is accepted and the session's handler is ready, and
// returns soon after ctx ends, with whatever grace it grants to running work.
// An error that implements Final and says so ends the node.
type Attempt func(ctx context.Context, ready func()) error

// Config is what a Supervisor needs. Attempt is required.
type Config struct {
	Attempt Attempt
	Policy  Policy
	// Clock paces the waits; nil = the real one.
	Clock clockwork.Clock
	// Random gives numbers in [0, 1) for the jitter; nil = math/rand.
	Random func() float64
	// Logger gets one line for each state change; nil = none.
	Logger *slog.Logger
}

// hurryWindow is how long a Hurry is good for: long enough that a session which
// the event has broken is found dead meanwhile, and short enough that the loss of
// one that was not broken is paced as always.
const hurryWindow = 30 * time.Second

// Supervisor runs the attempts of one node. Its loop is the state machine.
type Supervisor struct {
	attempt Attempt
	policy  Policy
	clock   clockwork.Clock
	random  func() float64
	log     *slog.Logger
	hurry   chan struct{} // of capacity 1: hurried has changed

	mu      sync.Mutex
	status  Status
	hurried time.Time // of the Hurry that no wait has used yet; zero = none
}

// New checks the policy. A non-positive interval of a finite policy is paced at
// DefaultInterval, with a warning.
func New(config Config) (*Supervisor, error) {
	if err := config.Policy.check(); err != nil {
		return nil, err
	}
	s := &Supervisor{
		attempt: config.Attempt,
		policy:  config.Policy,
		clock:   config.Clock,
		random:  config.Random,
		log:     config.Logger,
		hurry:   make(chan struct{}, 1),
	}
	if s.clock == nil {
		s.clock = clockwork.NewRealClock()
	}
	if s.random == nil {
		s.random = rand.Float64
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.policy.Interval <= 0 {
		s.log.Warn("reconnect interval is not positive, using the default",
			"interval_sec", s.policy.Interval.Seconds(), "used_sec", DefaultInterval.Seconds())
		s.policy.Interval = DefaultInterval
	}
	s.status = Status{State: Connecting, Since: s.clock.Now()}
	return s, nil
}

// Status may be called from any goroutine at any time.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Hurry lets the next attempt be made at once: it ends the wait under way, or the
// one that begins within hurryWindow, as when a session turns out to be dead. It
// is for events that make an attempt more likely to succeed than the last one was
// (the machine woke, its network changed), starts no attempt beside another, and
// may be called from any goroutine. It never blocks.
func (s *Supervisor) Hurry() {
	s.mu.Lock()
	s.hurried = s.clock.Now()
	s.mu.Unlock()
	select {
	case s.hurry <- struct{}{}:
	default: // The loop has not looked yet.
	}
}

// takeHurry reports whether a Hurry is good for the present wait, and uses it up.
func (s *Supervisor) takeHurry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := !s.hurried.IsZero() && s.clock.Since(s.hurried) <= hurryWindow
	s.hurried = time.Time{}
	return fresh
}

// Run makes attempts until ctx ends (nil), an error is final (that error) or
// the policy is exhausted (*ExhaustedError). It is called once, and returns
// only after the attempt it may be in has returned.
func (s *Supervisor) Run(ctx context.Context) error {
	s.log.Info("connecting to the edge", "max_attempts", s.policy.MaxAttempts)
	for {
		registered, err := s.try(ctx)
		switch {
		case ctx.Err() != nil:
			s.stop(nil)
			s.log.Info("node stopped: local shutdown")
			return nil
		case IsFinal(err):
			s.stop(err)
			s.log.Error("node stopped: waiting cannot heal this", "error", err)
			return err
		}
		failures := s.failed(registered, err)
		if s.policy.exhausted(failures) {
			err = &ExhaustedError{Attempts: failures, Last: err}
			s.stop(err)
			s.log.Error("node stopped: reconnect attempts exhausted", "failed_attempts", failures, "error", err)
			return err
		}
		if !s.pause(ctx, registered, failures, err) {
			s.stop(nil)
			s.log.Info("node stopped: local shutdown")
			return nil
		}
	}
}

// try runs one attempt and says whether it came as far as a registration. The
// error is never nil unless ctx has ended.
func (s *Supervisor) try(ctx context.Context) (registered bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	var once sync.Once
	var over bool // Guarded by s.mu: a late call of ready changes nothing.
	ready := func() {
		once.Do(func() {
			s.mu.Lock()
			if over {
				s.mu.Unlock()
				return
			}
			registered = true
			s.status = Status{State: Connected, Since: s.clock.Now()}
			s.mu.Unlock()
			s.log.Info("connected to the edge")
		})
	}
	err = s.attempt(ctx, ready)

	s.mu.Lock()
	defer s.mu.Unlock()
	over = true
	if err == nil {
		err = errNotRegistered
		if registered {
			err = errSessionEnded
		}
	}
	return registered, err
}

// failed enters Retrying and returns the number of consecutive failures. The
// end of a registered session is the start of an outage, not a failed attempt.
func (s *Supervisor) failed(registered bool, err error) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State != Retrying {
		s.status.State, s.status.Since = Retrying, s.clock.Now()
	}
	if !registered {
		s.status.Failures++
	}
	s.status.LastError = err
	return s.status.Failures
}

// pause waits for the next attempt and reports false if ctx ended first.
func (s *Supervisor) pause(ctx context.Context, registered bool, failures int, err error) bool {
	wait := s.policy.wait(s.random(), notBefore(err))
	s.setNextAttempt(s.clock.Now().Add(wait))

	attrs := []any{"error", err, "next_attempt_in", wait.Round(time.Millisecond), "failed_attempts", failures}
	if s.policy.MaxAttempts != Unlimited {
		attrs = append(attrs, "max_attempts", s.policy.MaxAttempts)
	}
	if registered {
		s.log.Warn("connection to the edge lost, will reconnect", attrs...)
	} else {
		s.log.Warn("cannot register with the edge, will retry", attrs...)
	}

	timer := s.clock.NewTimer(wait)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return false
		case <-timer.Chan():
			waiting = false
		case <-s.hurry:
			if s.takeHurry() {
				s.log.Info("trying again without waiting: the machine woke or its network changed")
				waiting = false
			}
		}
	}
	s.setNextAttempt(time.Time{})
	return ctx.Err() == nil
}

func (s *Supervisor) setNextAttempt(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.NextAttempt = at
}

// stop enters the final state; err nil = a shutdown that was asked for.
func (s *Supervisor) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.State, s.status.Since = Stopped, s.clock.Now()
	s.status.NextAttempt = time.Time{}
	if err != nil {
		s.status.LastError = err
	}
}
