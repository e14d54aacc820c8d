package provider

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/gate"
)

// Config is what the node's own configuration says about its providers.
type Config struct {
	// Clock is the source of time for every wait and limit.
	Clock clockwork.Clock
	Log   *slog.Logger
	// Allow is the local restriction of endpoints: a non-nil error keeps a
	// provider from being used and tells the client why. Nil allows every endpoint.
	Allow func(baseURL string) error
	// Credential is the bearer token for a provider, "" for none. Nil means no
	// provider has one. It is asked once per request and never logged.
	Credential func(providerID string) string
}

// Set is the providers of one node. It outlives sessions: a new session finds
// the same instances, gates and counts.
type Set struct {
	config Config
	// applying lets one Apply work at a time, without holding mu.
	applying sync.Mutex

	mu        sync.Mutex
	instances map[string]*instance
	// gates by physical server. An entry outlives its provider for as long as
	// executions hold slots, so that a provider which is removed and comes back,
	// or changes its id, still counts its orphans.
	gates   map[string]*gate.Gate
	running map[*exchange]struct{}
	// account is the count, of whoever sends the requests, that new ones appear
	// in, and revision that of the list in force.
	account, revision uint64
	applied           chan struct{} // closed, and replaced, when the list of providers changes
	closed            bool
	// idle is closed when the set is closed and the last exchange has ended.
	idle chan struct{}
}

// NewSet returns a Set without providers.
func NewSet(config Config) *Set {
	return &Set{
		config:    config,
		instances: make(map[string]*instance),
		gates:     make(map[string]*gate.Gate),
		running:   make(map[*exchange]struct{}),
		applied:   make(chan struct{}),
		idle:      make(chan struct{}),
	}
}

// Apply makes a list the node's providers: the whole list, as it was pushed. A
// provider of the same id, type and base URL stays, with its connections and its
// gate resized; requests of one that changed or went run to their end on the old
// one. A provider that cannot be used (endpoint not allowed, unknown type,
// malformed URL) is kept as such: requests for it fail with
// FAILURE_CODE_NEVER_OPENED and the reason.
func (s *Set) Apply(list *runtimev1.ProviderSet) { s.apply(list, false) }

// ApplyAnew is Apply for a caller that counts from zero: what runs so far is in
// no count of its any more, so that requests from now on wait it out at the gate
// (S14), and revisions begin again. Call it when the contexts of all requests
// before have ended.
func (s *Set) ApplyAnew(list *runtimev1.ProviderSet) { s.apply(list, true) }

func (s *Set) apply(list *runtimev1.ProviderSet, anew bool) {
	providers := list.GetProviders()
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	present, closed := maps.Clone(s.instances), s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	next := make(map[string]*instance, len(providers))
	// owners of servers, by provider id: two gates for one server would be none.
	owners := make(map[string]string, len(providers))
	for _, p := range providers {
		id := p.GetId()
		if next[id] != nil {
			s.config.Log.Warn("provider named twice", "provider_id", id)
			continue
		}
		current := present[id]
		if current == nil || !current.is(p) {
			current = newInstance(s.config, p)
		}
		if owner, taken := owners[current.server]; taken && current.unusable == "" {
			current.close()
			current = unusable(p, fmt.Sprintf("provider %s has the server of provider %s; give each its own base_url", id, owner))
		}
		if current.unusable == "" {
			owners[current.server] = id
		} else {
			s.config.Log.Warn("provider unusable", "provider_id", id, "reason", current.unusable)
		}
		next[id] = current
	}
	for _, p := range s.replace(next, list, anew) {
		p.close()
	}
}

// replace makes next the instances, with their live settings and gates. It
// returns those that are in no more use.
func (s *Set) replace(next map[string]*instance, list *runtimev1.ProviderSet, anew bool) (unused []*instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		for id, p := range next {
			if s.instances[id] != p {
				unused = append(unused, p)
			}
		}
		return unused
	}
	for id, old := range s.instances {
		if next[id] != old {
			old.retired = true
			if old.running == 0 {
				unused = append(unused, old)
			}
		}
	}
	s.instances, s.revision = next, list.GetRevision()
	if anew {
		s.account++
	}
	close(s.applied)
	s.applied = make(chan struct{})
	wanted := make(map[string]bool, len(next))
	for _, p := range list.GetProviders() {
		current := next[p.GetId()]
		if current.unusable != "" || wanted[current.server] {
			continue
		}
		wanted[current.server] = true
		current.settings = settingsOf(p)
		g := s.gates[current.server]
		if g == nil {
			g = gate.New(int(p.GetCapacity()), s.config.Clock)
			s.gates[current.server] = g
		}
		g.Resize(int(p.GetCapacity()))
		current.gate = g
	}
	for server, g := range s.gates {
		if !wanted[server] && g.InUse() == 0 && g.Waiting() == 0 {
			delete(s.gates, server)
		}
	}
	return unused
}

// Run executes one request: gate, provider, frames to out. It returns when the
// provider has let go of the request (or the grace after a cancel is over), the
// slot is returned and the final frame is written. The end of ctx is the cancel:
// the client is gone or the session lost. begin and body must not change
// afterwards either: a provider that answered early may still be read from body.
//
// The error is that of out, if it failed; how the request ended is in the frames.
func (s *Set) Run(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out Writer) error {
	x := &exchange{config: s.config, begin: begin, body: body, out: out, started: s.config.Clock.Now(),
		told: make(chan struct{}), graceOver: make(chan struct{})}
	if refusal := s.find(ctx, x); refusal != nil {
		return out.Frame(&Frame{Failure: refusal})
	}
	defer s.leave(x)
	return x.run(ctx)
}

// listPatience is how long a request waits for the list that its provider was
// chosen by: the two travel on different streams, and the request may be the
// faster one. What the list lacks after that, it lacks.
const listPatience = 2 * time.Second

// find enters the exchange, once the list it was chosen by is here.
func (s *Set) find(ctx context.Context, x *exchange) *runtimev1.Failure {
	refusal, applied := s.enter(x, true)
	if applied == nil {
		return refusal
	}
	patience := s.config.Clock.NewTimer(listPatience)
	defer patience.Stop()
	for {
		select {
		case <-applied:
			if refusal, applied = s.enter(x, true); applied == nil {
				return refusal
			}
			continue
		case <-patience.Chan():
		case <-ctx.Done():
		}
		refusal, _ = s.enter(x, false)
		return refusal
	}
}

// enter finds the instance of an exchange and counts it as running. If it may
// wait and the list in force has no such provider, or is older than the one the
// request names, enter does nothing and returns what is closed when the list
// changes.
func (s *Set) enter(x *exchange, mayWait bool) (refusal *runtimev1.Failure, applied <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.instances[x.begin.GetProviderId()]
	switch {
	case s.closed:
		return failure(neverOpened, "the node is stopping"), nil
	case mayWait && (p == nil || x.begin.GetProviderRevision() > s.revision):
		return nil, s.applied
	case p == nil:
		return failure(neverOpened, "this node has no provider %q", x.begin.GetProviderId()), nil
	case p.unusable != "":
		return failure(neverOpened, "%s", p.unusable), nil
	}
	x.instance, x.gate, x.settings = p, p.gate, p.settings
	x.owner = gate.Owner{Account: s.account, Name: p.id}
	p.running++
	s.running[x] = struct{}{}
	return nil, nil
}

// leave ends what enter began.
func (s *Set) leave(x *exchange) {
	s.mu.Lock()
	delete(s.running, x)
	x.instance.running--
	unused := x.instance.retired && x.instance.running == 0
	if s.closed && len(s.running) == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	if unused {
		x.instance.close()
	}
}

// CloseIdle lets no later request use a connection that exists now: after the
// machine slept or changed its network, they may lead nowhere (G21). Requests that
// run keep theirs to their end.
func (s *Set) CloseIdle() {
	s.mu.Lock()
	running := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, x := range running {
		x.spendConn()
	}
	for _, p := range s.all() {
		if p.transport != nil {
			p.transport.CloseIdleConnections()
		}
	}
}

// all is the present instances.
func (s *Set) all() []*instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*instance, 0, len(s.instances))
	for _, p := range s.instances {
		all = append(all, p)
	}
	return all
}

// Usage is what the gate of one provider holds.
type Usage struct {
	ProviderID string
	// InUse is the number of executions the provider may still be busy with,
	// those of former sessions included; Waiting the hand-offs waiting for a slot.
	InUse, Waiting, Capacity int
	// Unusable says why the provider takes no request, "" if it does.
	Unusable string
}

// Usage reports all providers, ordered by id. It is for people and logs.
func (s *Set) Usage() []Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	report := make([]Usage, 0, len(s.instances))
	for id, p := range s.instances {
		u := Usage{ProviderID: id, Unusable: p.unusable}
		if p.gate != nil {
			u.InUse, u.Waiting, u.Capacity = p.gate.InUse(), p.gate.Waiting(), p.gate.Capacity()
		}
		report = append(report, u)
	}
	slices.SortFunc(report, func(a, b Usage) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return report
}

// Close refuses new requests, waits for the running ones — whose contexts the
// caller has ended or lets run out — and closes all connections. When ctx ends
// first, it cuts the remaining requests' connections without any grace. It is
// idempotent only in that later calls wait as well.
func (s *Set) Close(ctx context.Context) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.applied)
		s.applied = make(chan struct{})
		if len(s.running) == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		s.mu.Lock()
		cut := make([]*exchange, 0, len(s.running))
		for x := range s.running {
			cut = append(cut, x)
		}
		s.mu.Unlock()
		for _, x := range cut {
			x.giveUp()
		}
		for _, x := range cut {
			x.overstay()
		}
		<-s.idle
	}
	for _, p := range s.all() {
		p.close()
	}
}
