package state

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Hash is the SHA-256 of a secret. In JSON it is 64 hexadecimal digits, and nothing
// where it is zero; everything else that prints it hides it.
type Hash [32]byte

// IsZero reports whether there is none.
func (h Hash) IsZero() bool { return h == Hash{} }

// String hides the hash.
func (Hash) String() string { return "(hash)" }

// GoString hides the hash from %#v.
func (Hash) GoString() string { return "(hash)" }

// MarshalText is for the file.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return errors.New("a hash must have 64 hexadecimal digits")
	}
	*h = Hash(b)
	return nil
}

// Credentials are the secrets that were made on a running Edge, by their hashes.
// Whoever changes them changes a Clone.
type Credentials struct {
	Keys  []Key  `json:"api_keys"`         // by name
	Joins []Join `json:"join_tokens"`      // the oldest first
	Nodes []Node `json:"node_credentials"` // by node
}

// Key is an API key.
type Key struct {
	Name    string    `json:"name"`
	Hash    Hash      `json:"sha256"`
	Created time.Time `json:"created"`
	By      string    `json:"by"` // name of the admin token
	// Models are the external model ids it may name; empty = all.
	Models []string `json:"models,omitempty"`
	// MaxConcurrent is the most requests at once; 0 = no limit.
	MaxConcurrent int `json:"max_concurrent,omitempty"`
}

// Join is a join token, for one use by one node.
type Join struct {
	ID      string    `json:"id"`
	Node    string    `json:"node"`
	Hash    Hash      `json:"sha256"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	By      string    `json:"by"`            // name of the admin token
	Used    time.Time `json:"used,omitzero"` // zero = not yet
}

// Node is the credential of a node.
type Node struct {
	Node  string    `json:"node"`
	Hash  Hash      `json:"sha256"`
	Since time.Time `json:"since"`
	// Used is when it was last used, as far as it has been kept; zero = not yet.
	Used time.Time `json:"used,omitzero"`
	// Former passes, too, until Hash is used; zero = there is none.
	Former Hash `json:"former_sha256,omitzero"`
	// Past is the last one that has ceased to pass; zero = there is none.
	Past Hash `json:"past_sha256,omitzero"`
	// Join is the id of the join token that the node came by.
	Join string `json:"joined_by"`
	// Offered says that Hash is of one that was offered over a session, in place of
	// the one shown there.
	Offered bool `json:"offered,omitempty"`
}

// Clone is a copy whose lists may be changed.
func (c Credentials) Clone() Credentials {
	return Credentials{Keys: slices.Clone(c.Keys), Joins: slices.Clone(c.Joins), Nodes: slices.Clone(c.Nodes)}
}

// Node finds the credential of a node; nil = it has none.
func (c *Credentials) Node(id string) *Node {
	at, ok := slices.BinarySearchFunc(c.Nodes, id, func(n Node, id string) int { return cmp.Compare(n.Node, id) })
	if !ok {
		return nil
	}
	return &c.Nodes[at]
}

// SetNode adds a node's credential, in place of one that it has.
func (c *Credentials) SetNode(n Node) {
	at, ok := slices.BinarySearchFunc(c.Nodes, n.Node, func(n Node, id string) int { return cmp.Compare(n.Node, id) })
	if ok {
		c.Nodes[at] = n
		return
	}
	c.Nodes = slices.Insert(c.Nodes, at, n)
}

// Key finds an API key by its name; nil = there is none.
func (c *Credentials) Key(name string) *Key {
	at, ok := slices.BinarySearchFunc(c.Keys, name, func(k Key, name string) int { return cmp.Compare(k.Name, name) })
	if !ok {
		return nil
	}
	return &c.Keys[at]
}

// AddKey adds an API key whose name is free.
func (c *Credentials) AddKey(k Key) {
	at, _ := slices.BinarySearchFunc(c.Keys, k.Name, func(k Key, name string) int { return cmp.Compare(k.Name, name) })
	c.Keys = slices.Insert(c.Keys, at, k)
}

// RemoveKey takes an API key away, if there is one of the name.
func (c *Credentials) RemoveKey(name string) {
	c.Keys = slices.DeleteFunc(c.Keys, func(k Key) bool { return k.Name == name })
}

// RemoveNode takes a node's credential away, if it has one.
func (c *Credentials) RemoveNode(id string) {
	c.Nodes = slices.DeleteFunc(c.Nodes, func(n Node) bool { return n.Node == id })
}

var credentialsFile = kind{
	name: "credentials.json", format: "iop-edge-credentials", content: "credentials", version: 1,
	without: "none of the API keys, join tokens and node credentials in it passes",
	again:   "make them again, or restore the file and restart the Edge",
}

// ErrNoCredentialsDir says that no secret can be made, as nobody has said where
// its hash is to be kept.
var ErrNoCredentialsDir = errors.New("edge.state_dir is not set: there is nowhere to keep a credential; set it and restart the Edge, or write the hash into the file")

// CredentialStore keeps the credentials of one running Edge. It is not safe for
// concurrent use.
type CredentialStore struct{ file file }

// OpenCredentials reads the credentials of a folder, as [Open] does the overrides:
// of a file that cannot be used nothing passes.
func OpenCredentials(dir string, now time.Time) (*CredentialStore, Credentials, error) {
	s := &CredentialStore{file{kind: credentialsFile, dir: dir}}
	if dir == "" {
		return s, Credentials{}, nil
	}
	all, err := ReadCredentials(dir)
	if err != nil {
		return s, Credentials{}, s.file.take(err, now)
	}
	return s, all, nil
}

// ReadCredentials returns the credentials that a folder holds and changes nothing.
// No file means none.
func ReadCredentials(dir string) (Credentials, error) {
	content, err := credentialsFile.read(dir)
	if content == nil || err != nil {
		return Credentials{}, err
	}
	all, why := parseCredentials(content)
	if why != "" {
		return Credentials{}, credentialsFile.unusable(dir, why)
	}
	return all, nil
}

// parseCredentials returns the credentials of a file's content, or why it cannot
// be used. Nothing passes by half: one entry that is wrong makes all unusable.
func parseCredentials(content []byte) (all Credentials, why string) {
	if err := json.Unmarshal(content, &all); err != nil {
		return Credentials{}, damaged(err)
	}
	taken := map[Hash]bool{{}: true}
	fresh := func(h Hash) bool {
		was := taken[h]
		taken[h] = true
		return !was
	}
	for i, k := range all.Keys {
		if k.Name == "" || !fresh(k.Hash) || k.MaxConcurrent < 0 || i > 0 && all.Keys[i-1].Name >= k.Name {
			return Credentials{}, fmt.Sprintf("it is damaged: API key %q", k.Name)
		}
	}
	for _, j := range all.Joins {
		if j.ID == "" || j.Node == "" || !fresh(j.Hash) || j.Expires.IsZero() {
			return Credentials{}, fmt.Sprintf("it is damaged: join token %q", j.ID)
		}
	}
	for i, n := range all.Nodes {
		if n.Node == "" || !fresh(n.Hash) || !n.Former.IsZero() && !fresh(n.Former) || i > 0 && all.Nodes[i-1].Node >= n.Node {
			return Credentials{}, fmt.Sprintf("it is damaged: credential of node %q", n.Node)
		}
	}
	return all, ""
}

// Save writes the credentials, all or nothing. An error is why the file does not
// have them.
func (s *CredentialStore) Save(all Credentials, now time.Time) error {
	if s.file.dir == "" {
		return ErrNoCredentialsDir
	}
	return s.file.write(all, now)
}
