package credentials

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/state"
)

const (
	// MaxLife is the longest that a join token serves, and what it does if nothing
	// is said.
	MaxLife = 24 * time.Hour
	// RotateAfter is the age at which a node's credential is replaced.
	RotateAfter = 24 * time.Hour

	// clockSlack is how far in the future something may have been made, when clocks
	// were set; beyond it a join token counts as expired.
	clockSlack = 5 * time.Minute
	// keptSpent is how long it is remembered that a join token has ended, to tell so.
	keptSpent = 7 * 24 * time.Hour
	// retryAfter is how soon a credential is replaced whose replacement could not be
	// kept.
	retryAfter = 10 * time.Minute

	// rewriteAfter is how soon a write that failed is tried again by itself.
	rewriteAfter = time.Minute

	maxKeys, maxJoins = 10000, 10000
)

// Options say what a Registry works with. Keyring, Clock and Log are required.
type Options struct {
	Dir     string // where it is kept; empty = nowhere: nothing can be made
	Keyring *auth.Keyring
	Clock   clockwork.Clock
	Log     *slog.Logger
	// Fence ends the session of a node whose credential passes no more, and reports
	// whether there was one. Nil = there are no sessions.
	Fence func(node string) bool
}

// Registry keeps the credentials of one running Edge.
type Registry struct {
	Options
	store *state.CredentialStore // by changing

	changing sync.Mutex // over a whole change, its write included; taken before mu
	writes   sync.WaitGroup

	mu    sync.Mutex
	own   auth.Credentials // of the file
	all   state.Credentials
	later map[string]time.Time // nodes whose credential is not to be replaced before
	// version counts the changes of all; written is the one that the file has.
	version, written uint64
	failed           time.Time // when a write failed last

	problem atomic.Pointer[string]
}

// Open reads what the folder keeps and has it pass, beside the credentials of the
// configuration. Whatever is wrong with the folder is in the log and in Problem,
// and then nothing of it passes.
func Open(o Options, own auth.Credentials) *Registry {
	r := &Registry{Options: o, later: map[string]time.Time{}}
	var err error
	r.store, r.all, err = state.OpenCredentials(o.Dir, o.Clock.Now())
	if err != nil {
		o.Log.Error("no kept credential passes", "error", err)
		r.say(err.Error())
	}
	r.Apply(own)
	return r
}

// Close waits for writes under way.
func (r *Registry) Close() { r.writes.Wait() }

// Problem is what is wrong with what is kept; empty if nothing is.
func (r *Registry) Problem() string {
	if p := r.problem.Load(); p != nil {
		return *p
	}
	return ""
}

func (r *Registry) say(problem string) { r.problem.Store(&problem) }

// Apply takes the credentials of another configuration; what was made here stays.
// It returns what of that the configuration keeps from passing, one line each.
func (r *Registry) Apply(own auth.Credentials) (warnings []string) {
	r.mu.Lock()
	r.own = own
	r.Keyring.Apply(own)
	r.tellLocked()
	for _, k := range r.all.Keys {
		if why := own.Shadows(issuedKey(k)); why != "" {
			warnings = append(warnings, "the API key "+k.Name+" that was made on the Edge does not pass: "+why)
		}
	}
	for _, n := range r.all.Nodes {
		if why := r.refusedLocked(n.Node); why != "" {
			warnings = append(warnings, "the credential of node "+n.Node+" does not pass: "+why)
		}
	}
	behind := r.version != r.written
	r.mu.Unlock()
	if behind {
		r.writeLater()
	}
	return warnings
}

// refusedLocked is why a node's kept credential does not pass; empty if it does.
func (r *Registry) refusedLocked(node string) string {
	switch {
	case slices.ContainsFunc(r.own.Nodes, func(t auth.Token) bool { return t.Name == node }):
		return "the file has a token for it"
	case !slices.Contains(r.own.Joined, node):
		return "the file does not have the node"
	}
	return ""
}

func issuedKey(k state.Key) auth.Key {
	return auth.Key{Name: k.Name, Hash: auth.Hash(k.Hash), Models: k.Models, MaxConcurrent: k.MaxConcurrent}
}

// tellLocked tells the keyring what passes.
func (r *Registry) tellLocked() {
	var issued auth.Issued
	for _, k := range r.all.Keys {
		issued.Keys = append(issued.Keys, issuedKey(k))
	}
	for _, n := range r.all.Nodes {
		issued.Nodes = append(issued.Nodes, auth.Token{Name: n.Node, Hash: auth.Hash(n.Hash)})
		if !n.Former.IsZero() {
			issued.Nodes = append(issued.Nodes, auth.Token{Name: n.Node, Hash: auth.Hash(n.Former)})
		}
	}
	r.Keyring.Issue(issued)
}

// change decides and makes a change of all, which is its own to alter. An error
// means that there is none.
type change func(all *state.Credentials) error

// add makes a change that gives a secret out: written first, in force then.
func (r *Registry) add(c change) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	next, version := r.all.Clone(), r.version
	err := c(&next)
	r.mu.Unlock()
	switch {
	case err != nil:
		return err
	case r.Dir == "":
		return state.ErrNoCredentialsDir
	}
	r.forgetJoins(&next)
	if err := r.store.Save(next, r.Clock.Now()); err != nil {
		return &NotKeptError{err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == version {
		r.putLocked(next)
		r.keptLocked()
		return nil
	}
	// Something was taken away or used meanwhile: the change is decided again, and the
	// file is written again.
	next = r.all.Clone()
	if err = c(&next); err == nil {
		r.putLocked(next)
	}
	r.writeLater()
	return err
}

// now makes a change that is in force at once. The caller has it written.
func (r *Registry) now(c change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.all.Clone()
	if err := c(&next); err != nil {
		return err
	}
	r.putLocked(next)
	return nil
}

// putLocked puts credentials into force.
func (r *Registry) putLocked(all state.Credentials) {
	r.all = all
	r.version++
	r.tellLocked()
}

// keptLocked notes that the file has what is in force.
func (r *Registry) keptLocked() {
	r.written = r.version
	r.say("")
}

// write writes what is in force, if the file does not have it. An error is why the
// file still lets pass what does not.
func (r *Registry) write() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	all, version, written := r.all, r.version, r.written
	r.mu.Unlock()
	if version == written {
		return nil
	}
	err := r.store.Save(all, r.Clock.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.failed = r.Clock.Now()
		r.say("a credential that was revoked or replaced would pass again after a restart: " + err.Error())
		r.Log.Error("a credential that was revoked or replaced would pass again after a restart", "error", err)
	case r.version == version:
		r.keptLocked()
	}
	return err
}

// writeLater is write in its own time. Its error is in the log, and the next change
// or refresh, or Retry, tries again.
func (r *Registry) writeLater() { r.writes.Go(func() { _ = r.write() }) }

// Retry has what is in force written, if the file does not have it and the last
// failure is a while ago. It is to be called now and then, and waits for nothing.
func (r *Registry) Retry() {
	r.mu.Lock()
	behind := r.version != r.written && r.Clock.Since(r.failed) >= rewriteAfter
	if behind {
		r.failed = r.Clock.Now() // one at a time
	}
	r.mu.Unlock()
	if behind {
		r.writeLater()
	}
}

// forgetJoins takes away join tokens that ended long ago.
func (r *Registry) forgetJoins(all *state.Credentials) {
	before := r.Clock.Now().Add(-keptSpent)
	all.Joins = slices.DeleteFunc(all.Joins, func(j state.Join) bool { return j.Expires.Before(before) })
}

// serves reports whether a join token can still be used at a time.
func serves(j state.Join, now time.Time) bool {
	return j.Used.IsZero() && now.Before(j.Expires) && now.After(j.Created.Add(-clockSlack))
}
