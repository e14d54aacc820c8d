package auth

import (
	"crypto/subtle"
	"slices"
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
	// Joined are the ids of the nodes that have no token here: they are known, and
	// pass by an issued credential only.
	Joined []string
}

// Issued are the credentials that were made beside the configuration.
type Issued struct {
	Keys []Key
	// Nodes are credentials of nodes; the name is the node id, and each of several
	// of one node passes.
	Nodes []Token
}

// Shadows says why the configuration keeps an issued key from passing: what the
// operator has written wins. Empty = it does not.
func (c *Credentials) Shadows(k Key) string {
	for _, own := range c.Keys {
		if own.Name == k.Name {
			return "openai.api_keys has a key of this name"
		}
		if own.Hash == k.Hash {
			return "openai.api_keys has the same secret under the name " + own.Name
		}
	}
	for _, t := range slices.Concat(c.Admin, c.Read) {
		if t.Hash == k.Hash {
			return "the file has the same secret as a token, under the name " + t.Name
		}
	}
	return ""
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

// Keyring answers whose a presented secret is: of the configuration's credentials,
// and of issued ones where that says nothing else. It is safe for concurrent use;
// [Keyring.Apply] and [Keyring.Issue] each replace one kind in one step.
type Keyring struct {
	current atomic.Pointer[accepted]

	mu     sync.Mutex
	own    Credentials
	issued Issued
	counts map[Hash]*atomic.Int64 // requests of each API key; kept over Apply while not 0
}

// accepted is one immutable set of credentials.
type accepted struct {
	open  bool
	keys  []*APIKey
	admin []Token
	read  []Token
	nodes []Token
	// Of the configuration: ids of nodes, ids of those that have a token there, and
	// names of keys.
	known, ownNodes, ownKeys map[string]bool
}

// NewKeyring returns a keyring that accepts the credentials.
func NewKeyring(c Credentials) *Keyring {
	k := &Keyring{counts: map[Hash]*atomic.Int64{}}
	k.Apply(c)
	return k
}

// Apply replaces what the configuration accepts; what was issued stays. Requests
// that a key has running still count for that key.
func (k *Keyring) Apply(c Credentials) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own = c
	k.buildLocked()
}

// Issue replaces what was issued.
func (k *Keyring) Issue(issued Issued) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.issued = issued
	k.buildLocked()
}

func (k *Keyring) buildLocked() {
	c := &k.own
	next := &accepted{
		open:  c.Open,
		admin: slices.Clone(c.Admin),
		read:  slices.Clone(c.Read),
		nodes: slices.Clone(c.Nodes),
		known: map[string]bool{}, ownNodes: map[string]bool{}, ownKeys: map[string]bool{},
	}
	for _, n := range c.Nodes {
		next.known[n.Name], next.ownNodes[n.Name] = true, true
	}
	for _, key := range c.Keys {
		next.ownKeys[key.Name] = true
	}
	joined := map[string]bool{}
	for _, id := range c.Joined {
		next.known[id], joined[id] = true, true
	}
	for _, n := range k.issued.Nodes {
		if joined[n.Name] {
			next.nodes = append(next.nodes, n)
		}
	}
	keys := slices.Clone(c.Keys)
	for _, key := range k.issued.Keys {
		if c.Shadows(key) == "" {
			keys = append(keys, key)
		}
	}
	counts := map[Hash]*atomic.Int64{}
	for h, n := range k.counts {
		if n.Load() != 0 {
			counts[h] = n
		}
	}
	for _, key := range keys {
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
	h, now := hashOf(secret), k.current.Load()
	for _, n := range now.nodes {
		own := subtle.ConstantTimeCompare(h[:], n.Hash[:]) == 1
		if n.Name == id {
			ok = ok || own && secret != ""
		}
	}
	return now.known[id], ok
}

// Configured reports whether the configuration has an API key of the name.
func (k *Keyring) Configured(name string) bool { return k.current.Load().ownKeys[name] }

// Configures reports whether the configuration has a node, and whether it has a
// token of it.
func (k *Keyring) Configures(node string) (known, token bool) {
	now := k.current.Load()
	return now.known[node], now.ownNodes[node]
}

// Running is how many requests of the key with this hash are admitted now.
func (k *Keyring) Running(h Hash) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.counts[h]; n != nil {
		return int(n.Load())
	}
	return 0
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
