package admission

import "time"

// NodeID names a node as configured.
type NodeID string

// ProviderID names a provider within its node.
type ProviderID string

// ResourceKey names a provider resource: the one unit that capacity belongs to.
type ResourceKey struct {
	Node     NodeID
	Provider ProviderID
}

// String is "node/provider".
func (k ResourceKey) String() string { return string(k.Node) + "/" + string(k.Provider) }

// less orders keys for tie-breaks.
func (k ResourceKey) less(o ResourceKey) bool {
	if k.Node != o.Node {
		return k.Node < o.Node
	}
	return k.Provider < o.Provider
}

// GroupKey names a model group or a direct route: the external model id.
type GroupKey string

// ScopeKey names a queue policy scope: [PoolScope] or "route:<model>".
type ScopeKey string

// PoolScope is shared by every model group of models[].
const PoolScope ScopeKey = "pool"

// Generation numbers the accepted connections of nodes; it rises with each.
type Generation uint64

// LeaseID names a lease; ids rise and are never used again.
type LeaseID uint64

// Seq is an enqueue_seq: given to a request once, at its first admission
// attempt. It also names the request.
type Seq uint64

// Class is the context class of a request.
type Class uint8

// The context classes.
const (
	Normal Class = iota
	Long
)

// String is "normal" or "long".
func (c Class) String() string {
	if c == Long {
		return "long"
	}
	return "normal"
}

// Surface is a set of endpoint families: those that a provider's type serves,
// or the one that a request needs.
type Surface uint32

// The endpoint families.
const (
	SurfaceChat Surface = 1 << iota
	SurfaceCompletions
	SurfaceResponses
	SurfaceEmbeddings
	SurfaceMessages
	SurfaceRerank
	SurfaceTranscription
	SurfaceImages
	SurfaceSpeech
	SurfaceTranslation // of audio
	SurfaceCountTokens
	SurfaceOllama // its own API
)

// Health is the static health of a provider, as configured.
type Health uint8

// The static healths. Only Unhealthy excludes.
const (
	Healthy Health = iota
	Degraded
	Unhealthy
)

// String is the configuration's word.
func (h Health) String() string { return [...]string{"healthy", "degraded", "unhealthy"}[h] }

// Selection is how one of several free candidates is chosen.
type Selection uint8

// The selections: by load first, or by priority first.
const (
	Balanced Selection = iota
	PriorityFirst
)

// Config is the whole of what the core is told from outside; [Core.Reconfigure]
// takes a new one at any time. It has been validated: keys are unique, and
// groups name existing scopes and resources.
type Config struct {
	Selection Selection
	Scopes    []Scope
	Resources []Resource
	Groups    []Group
}

// Scope is one queue policy.
type Scope struct {
	Key      ScopeKey
	MaxQueue int           // most that may wait; 0 = nobody waits
	Timeout  time.Duration // longest wait, from enqueue
}

// Resource is one provider as configured.
type Resource struct {
	Key          ResourceKey
	Capacity     int // executions at once; 0 = excluded
	LongCapacity int // long executions at once; 0 = no separate limit
	Priority     int
	Enabled      bool
	Drain        bool // takes nothing new: what runs is to end
	Health       Health
	Surfaces     Surface
}

// Group is one model group or direct route: its candidates and whose queue
// policy governs it.
type Group struct {
	Key        GroupKey
	Scope      ScopeKey
	Candidates []Candidate
}

// Candidate is a resource that serves a group, under the name that the provider
// itself uses.
type Candidate struct {
	Resource ResourceKey
	Target   string
}

// Request is what the core needs to know of a request.
type Request struct {
	Group   GroupKey
	Class   Class
	Surface Surface // one endpoint family
	// InputTokens is the estimate that Class follows from. It is kept for the record
	// and decides nothing.
	InputTokens int
}

// Reason is why a candidate is passed over, or why a request waits or ended.
type Reason uint8

// The reason codes, the strongest obstacle first: of several candidates, the
// weakest one names the request's reason.
const (
	ReasonNone         Reason = iota
	ReasonNoModel             // its type cannot serve this endpoint
	ReasonRefused             // it already refused this request
	ReasonDisabled            // switched off
	ReasonCapacityZero        // configured with capacity 0
	ReasonUnhealthy           // static health
	ReasonOffline             // its node is not connected
	ReasonDraining            // it, or its node, takes no new work
	ReasonOverCapacity        // holds more than a lowered capacity
	ReasonFull                // all slots taken
	ReasonLongFull            // all long slots taken
	ReasonBehind              // an older request of the same class goes first
)

var reasonCodes = [...]string{"", "no_model", "refused", "disabled", "capacity_zero", "unhealthy", "offline", "draining", "over_capacity", "full", "long_full", "behind"}

// String is the reason code.
func (r Reason) String() string { return reasonCodes[r] }

// excluded reports whether a candidate passed over for r is no live candidate.
func (r Reason) excluded() bool { return r >= ReasonNoModel && r <= ReasonDraining }

// EffectKind says what happened.
type EffectKind uint8

// The kinds of effect.
const (
	// Queued: the request waits until Deadline. Reason says why.
	Queued EffectKind = iota + 1
	// Granted: a lease is reserved for the request.
	Granted
	// Requeued: its reserved lease ended before hand-off (fence), and the
	// request waits again with its seq and deadline. Always followed by a
	// Granted, a Rejected, or nothing while it waits.
	Requeued
	// Rejected: the request has ended without a lease. Result says how.
	Rejected
	// Revoked: the request's tracked lease has ended because its node
	// disconnected; the request must end with provider_disconnected.
	Revoked
)

// Result is how a request ended without a lease.
type Result uint8

// The results.
const (
	ResultFull Result = iota + 1
	ResultUnavailable
	ResultTimeout
	ResultCancelled
	ResultUnknown // no such group
)

// String is the queue result's name.
func (r Result) String() string {
	return [...]string{"", "full", "unavailable", "timeout", "cancelled", "unknown"}[r]
}

// Effect is one thing that followed from a command.
type Effect struct {
	Kind     EffectKind
	Seq      Seq
	Result   Result // Rejected
	Reason   Reason // Queued, Rejected: the blocking reason
	Lease    LeaseID
	Resource ResourceKey
	Gen      Generation
	Target   string    // Granted: the served target
	Deadline time.Time // Queued, Requeued: when the wait ends
	// Rejected with ResultFull or ResultTimeout: how long a newcomer would wait,
	// from recent service times and the queue ahead; 0 = not known yet.
	RetryAfter time.Duration
}
