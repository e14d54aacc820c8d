package openai

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/intake"
)

// Keys knows the API keys. *auth.Keyring is one; a test may bring another.
type Keys interface {
	// Open reports whether clients need no key; one that they send is then ignored.
	Open() bool
	// APIKey finds the key that a client presents.
	APIKey(secret string) (*auth.APIKey, bool)
}

// Model is one entry of the catalogue.
type Model struct {
	ID            string
	Group         admission.GroupKey
	Targets       []string // served ones, under which the input estimate is calibrated
	ContextWindow int      // tokens of one request; 0 = not stated
}

// Core tells what runs. *broker.Broker is one.
type Core interface {
	Snapshot() admission.Snapshot
}

// Settings are what a refresh may change. A Settings is never changed once it was handed over.
type Settings struct {
	// Models in the order in which they are listed. Ids are unique, exact and case-sensitive.
	Models []Model
	// Created is the listed creation time of every model: when the configuration was read.
	Created time.Time
	Keys    Keys
	// Core is asked which models run; nil = none is known to.
	Core Core
	// AllowedOrigins are the browser origins whose pages may call ("https://chat.example.org"); "*" allows all.
	AllowedOrigins []string
	// LongThreshold in tokens: an input estimate from there on is a long request.
	LongThreshold int
	// BodyLimit in bytes.
	BodyLimit int64
	// Intake is the memory for bodies that are still on their way; nil = as much as they want.
	Intake *intake.Budget
	// HeaderLimit in bytes over all fields of a request; 0 = DefaultHeaderLimit. It has to be below the server's own MaxHeaderBytes.
	HeaderLimit int
	// BodyTimeout is the longest time in which a client may send less than 4 KiB of its body; 0 = DefaultBodyTimeout.
	BodyTimeout time.Duration
	// IdleTimeout is the longest silence of the provider after its head; 0 = none.
	IdleTimeout time.Duration
	// StallTimeout is how long a client may take nothing of what waits for it; 0 = DefaultStallTimeout.
	StallTimeout time.Duration
	// Keepalive is the time between comments in a silent stream of events; 0 = none are sent.
	Keepalive time.Duration
	// TotalTimeout of an exchange, waiting included; 0 = none.
	TotalTimeout time.Duration
	// ReconnectInterval of the nodes: what Retry-After says while none is connected; 0 = DefaultReconnectInterval.
	ReconnectInterval time.Duration
}

// Defaults of what Settings leaves at zero.
const (
	DefaultHeaderLimit       = 32 << 10
	DefaultBodyTimeout       = 60 * time.Second
	DefaultStallTimeout      = 60 * time.Second
	DefaultReconnectInterval = 10 * time.Second
)

// active is a Settings with what requests need of it ready to use.
type active struct {
	Settings
	byID map[string]*Model
}

func activate(s Settings) *active {
	if s.HeaderLimit == 0 {
		s.HeaderLimit = DefaultHeaderLimit
	}
	if s.BodyTimeout == 0 {
		s.BodyTimeout = DefaultBodyTimeout
	}
	if s.StallTimeout == 0 {
		s.StallTimeout = DefaultStallTimeout
	}
	if s.ReconnectInterval == 0 {
		s.ReconnectInterval = DefaultReconnectInterval
	}
	a := &active{Settings: s, byID: make(map[string]*Model, len(s.Models))}
	for i := range s.Models {
		a.byID[s.Models[i].ID] = &s.Models[i]
	}
	return a
}
