package auth

import (
	"sync"
	"sync/atomic"
)

// APIKey is an accepted API key of a client.
type APIKey struct {
	name    string
	hash    Hash
	models  map[string]bool // nil = all
	limit   int64           // 0 = none
	running *atomic.Int64   // shared by all versions of this key
}

func newAPIKey(k Key, running *atomic.Int64) *APIKey {
	a := &APIKey{name: k.Name, hash: k.Hash, limit: int64(k.MaxConcurrent), running: running}
	if len(k.Models) > 0 {
		a.models = map[string]bool{}
		for _, m := range k.Models {
			a.models[m] = true
		}
	}
	return a
}

// Name is what the configuration calls the key; empty for no key.
func (a *APIKey) Name() string {
	if a == nil {
		return ""
	}
	return a.name
}

// String is the name.
func (a *APIKey) String() string { return a.name }

// GoString hides the hash from %#v.
func (a *APIKey) GoString() string { return a.name }

// Allows reports whether the key may name the external model id.
func (a *APIKey) Allows(model string) bool { return a.models == nil || a.models[model] }

// Limit is the most requests at once; 0 = no limit.
func (a *APIKey) Limit() int { return int(a.limit) }

// Running is how many requests of the key are admitted now.
func (a *APIKey) Running() int { return int(a.running.Load()) }

// Admit counts one more request of the key, if its limit allows. The caller
// calls release when the request has ended; later calls do nothing.
func (a *APIKey) Admit() (release func(), ok bool) {
	for {
		n := a.running.Load()
		if a.limit > 0 && n >= a.limit {
			return nil, false
		}
		if a.running.CompareAndSwap(n, n+1) {
			break
		}
	}
	var once sync.Once
	return func() { once.Do(func() { a.running.Add(-1) }) }, true
}
