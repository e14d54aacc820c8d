package auth

import (
	"crypto/subtle"
	"sync"
	"sync/atomic"
)

// Credentials are all that a [Keyring] accepts. Names are unique within each
// list, hashes over all of keys, admin and read.
type Credentials struct {
	// Open lets clients in without an API key; a key they send is ignored.
	Open  bool
	Keys  []Key
	Admin []Token
	Read  []Token
	// Nodes are the tokens of nodes; the name is the node id.
	Nodes []Token
}

// Key is an API key of a client.
type Key struct {
	Name string
	Hash Hash
	// Models are the external model ids it may name; empty = all.
	Models []string
	// MaxConcurrent is the most requests at once, waiting ones included; 0 = no
	// limit.
	MaxConcurrent int
}

// Token is any other named credential.
type Token struct {
	Name string
	Hash Hash
}

// Keyring answers whose a presented secret is. It is safe for concurrent use;
// [Keyring.Apply] replaces the credentials in one step.
type Keyring struct {
	current atomic.Pointer[accepted]

	mu     sync.Mutex
	counts map[Hash]*atomic.Int64 // requests of each API key; kept over Apply while not 0
}

// accepted is one immutable set of credentials.
type accepted struct {
	open  bool
	keys  []*APIKey
	admin []Token
	read  []Token
	nodes []Token
}

// NewKeyring returns a keyring that accepts the credentials.
func NewKeyring(c Credentials) *Keyring {
	k := &Keyring{counts: map[Hash]*atomic.Int64{}}
	k.Apply(c)
	return k
}

// Apply replaces what is accepted. Requests that a key has running still count
// for that key.
func (k *Keyring) Apply(c Credentials) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := &accepted{
		open:  c.Open,
		admin: append([]Token(nil), c.Admin...),
		read:  append([]Token(nil), c.Read...),
		nodes: append([]Token(nil), c.Nodes...),
	}
	counts := map[Hash]*atomic.Int64{}
	for h, n := range k.counts {
		if n.Load() != 0 {
			counts[h] = n
		}
	}
	for _, key := range c.Keys {
		running := k.counts[key.Hash]
		if running == nil {
			running = new(atomic.Int64)
		}
		counts[key.Hash] = running
		next.keys = append(next.keys, newAPIKey(key, running))
	}
	k.counts = counts
	k.current.Store(next)
}

// Open reports whether clients need no API key.
func (k *Keyring) Open() bool { return k.current.Load().open }

// APIKey finds the key that a client presents.
func (k *Keyring) APIKey(secret string) (*APIKey, bool) {
	now, h := k.current.Load(), hashOf(secret)
	at := match(len(now.keys), func(i int) *Hash { return &now.keys[i].hash }, h)
	if secret == "" || at < 0 {
		return nil, false
	}
	return now.keys[at], true
}

// Admin returns the name of the admin token that is presented.
func (k *Keyring) Admin(secret string) (name string, ok bool) {
	return find(k.current.Load().admin, secret)
}

// Reader returns the name of the read or admin token that is presented: who may
// change an Edge may read it.
func (k *Keyring) Reader(secret string) (name string, ok bool) {
	now := k.current.Load()
	reader, isReader := find(now.read, secret)
	admin, isAdmin := find(now.admin, secret)
	if isReader {
		return reader, true
	}
	return admin, isAdmin
}

// Node judges the token of a node that registers: whether the node is
// configured, and whether the token is its own.
func (k *Keyring) Node(id, secret string) (known, ok bool) {
	h := hashOf(secret)
	for _, n := range k.current.Load().nodes {
		own := subtle.ConstantTimeCompare(h[:], n.Hash[:]) == 1
		if n.Name == id {
			known, ok = true, own && secret != ""
		}
	}
	return known, ok
}

func find(tokens []Token, secret string) (string, bool) {
	at := match(len(tokens), func(i int) *Hash { return &tokens[i].Hash }, hashOf(secret))
	if secret == "" || at < 0 {
		return "", false
	}
	return tokens[at].Name, true
}

// match returns the place of h among n hashes, or -1. It looks at all of them,
// whichever it is.
func match(n int, hash func(int) *Hash, h Hash) int {
	at := -1
	for i := range n {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash(i)[:], h[:]), i, at)
	}
	return at
}
