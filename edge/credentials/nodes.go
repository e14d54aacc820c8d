package credentials

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/state"
)

// Join is what is known of a join token.
type Join struct {
	ID, Node, By     string
	Created, Expires time.Time
}

// Source is where a node's token or credential is.
type Source string

// The sources.
const (
	Nowhere Source = "" // it has not joined
	OfFile  Source = "file"
	OfState Source = "state"
)

// Node is what is known of how a node shows who it is.
type Node struct {
	Node         string
	Source       Source
	Since, Used  time.Time // zero = not known
	Join         string    // id of the join token that it came by
	FormerPasses bool
	Refused      string // why its credential does not pass; empty if it does
}

// CreateJoinToken makes a join token for a node that the configuration has. A life
// of 0 is MaxLife.
func (r *Registry) CreateJoinToken(by, node string, life time.Duration) (secret string, made Join, err error) {
	secret = auth.NewToken(auth.PrefixJoin)
	now := r.Clock.Now().UTC()
	kept := state.Join{
		ID: auth.NewID(), Node: node, Hash: state.Hash(auth.HashOf(secret)), By: by,
		Created: now, Expires: now.Add(min(MaxLife, cmp.Or(life, MaxLife))),
	}
	err = r.add(func(all *state.Credentials) error {
		if err := r.mayJoin(node); err != nil {
			return err
		}
		if len(all.Joins) >= maxJoins {
			return &TooManyError{"join tokens", maxJoins}
		}
		all.Joins = append(all.Joins, kept)
		return nil
	})
	if err != nil {
		return "", Join{}, err
	}
	return secret, joinOf(kept), nil
}

func joinOf(j state.Join) Join {
	return Join{ID: j.ID, Node: j.Node, By: j.By, Created: j.Created, Expires: j.Expires}
}

// mayJoin says why a node cannot join.
func (r *Registry) mayJoin(node string) error {
	known, own := r.Keyring.Configures(node)
	switch {
	case !known:
		return &UnknownError{"node", node}
	case own:
		return &HeldByFileError{"token of node", node}
	}
	return nil
}

// Join exchanges a join token for the credential of its node. Of two exchanges of
// one token at the same moment one succeeds. The caller logs.
func (r *Registry) Join(token, node string) (credential, id string, err error) {
	credential = auth.NewToken(auth.PrefixNode)
	now := r.Clock.Now().UTC()
	shown := state.Hash(auth.HashOf(token))
	err = r.add(func(all *state.Credentials) error {
		at := -1
		for i := range all.Joins {
			at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(all.Joins[i].Hash[:], shown[:]), i, at)
		}
		if at < 0 {
			return ErrJoinRefused
		}
		j := &all.Joins[at]
		id = j.ID
		switch {
		case j.Node != node:
			return ErrJoinRefused
		case !serves(*j, now):
			return &SpentError{Node: node, Used: j.Used, Expired: j.Expires}
		}
		if err := r.mayJoin(node); err != nil {
			return err
		}
		next := state.Node{Node: node, Hash: state.Hash(auth.HashOf(credential)), Since: now, Join: j.ID}
		if n := all.Node(node); n != nil {
			next.Former, next.Past = n.Former, n.Past
			if !n.Used.IsZero() {
				next.Former = n.Hash
			}
		}
		j.Used = now
		all.SetNode(next)
		return nil
	})
	if err != nil {
		return "", id, err
	}
	return credential, id, nil
}

// Nodes lists the join tokens that serve, by node, and the credential of every
// configured node in the order of the file, then of others that have one.
func (r *Registry) Nodes(configured []string) (joins []Join, nodes []Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	for _, j := range r.all.Joins {
		if serves(j, now) {
			joins = append(joins, joinOf(j))
		}
	}
	slices.SortStableFunc(joins, func(a, b Join) int { return cmp.Compare(a.Node, b.Node) })
	kept := map[string]bool{}
	for _, id := range configured {
		n := Node{Node: id}
		if slices.ContainsFunc(r.own.Nodes, func(t auth.Token) bool { return t.Name == id }) {
			n.Source = OfFile
		} else if c := r.all.Node(id); c != nil {
			n = r.shownLocked(*c)
			kept[id] = true
		}
		nodes = append(nodes, n)
	}
	for _, c := range r.all.Nodes {
		if !kept[c.Node] {
			nodes = append(nodes, r.shownLocked(c))
		}
	}
	return joins, nodes
}

func (r *Registry) shownLocked(c state.Node) Node {
	return Node{
		Node: c.Node, Source: OfState, Since: c.Since, Used: c.Used, Join: c.Join,
		FormerPasses: !c.Former.IsZero(), Refused: r.refusedLocked(c.Node),
	}
}

// RevokedNode is what has been taken away from a node.
type RevokedNode struct {
	Credential   bool
	JoinTokens   int // that still served
	WasConnected bool
	Lost         error // why this does not outlast a restart; nil if it does
}

// RevokeNode takes a node's credential and join tokens away, and ends its session.
func (r *Registry) RevokeNode(node string) (RevokedNode, error) {
	var out RevokedNode
	now := r.Clock.Now()
	err := r.now(func(all *state.Credentials) error {
		out.Credential = all.Node(node) != nil
		all.RemoveNode(node)
		before := len(all.Joins)
		all.Joins = slices.DeleteFunc(all.Joins, func(j state.Join) bool {
			if j.Node == node && serves(j, now) {
				out.JoinTokens++
			}
			return j.Node == node
		})
		if out.Credential || len(all.Joins) < before {
			return nil
		}
		switch known, own := r.Keyring.Configures(node); {
		case own:
			return &HeldByFileError{"token of node", node}
		case !known:
			return &UnknownError{"node", node}
		}
		return &UnknownError{"credential or join token of node", node}
	})
	if err != nil {
		return RevokedNode{}, err
	}
	if r.Fence != nil {
		out.WasConnected = r.Fence(node)
	}
	out.Lost = r.write()
	return out, nil
}

// Used notes that a node's credential was used: an accepted registration, or the
// proof that a next one is kept. The former one passes no more if it was the
// present one.
func (r *Registry) Used(node, secret string) {
	shown, now := state.Hash(auth.HashOf(secret)), r.Clock.Now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.all.Node(node)
	switch {
	case n == nil:
		return
	case subtle.ConstantTimeCompare(n.Hash[:], shown[:]) != 1:
		return // the former one, or the file's
	}
	first, former := n.Used.IsZero(), n.Former
	next := *n
	next.Used = now
	if !former.IsZero() {
		next.Former, next.Past = state.Hash{}, former
	}
	all := r.all.Clone()
	all.SetNode(next)
	if !first && former.IsZero() {
		r.all = all // not worth a write of its own
		return
	}
	r.putLocked(all)
	r.writeLater()
}

// Next is a new credential for a node that has shown secret, if it is time for one;
// empty = it is not, or it cannot be kept. Until it is used, secret passes too.
// Alive reports whether it can still be told to the node: it is asked in the step
// that makes the credential, so that a session which is over never takes away what
// was offered to the one after it.
func (r *Registry) Next(node, secret string, alive func() bool) string {
	shown, now := state.Hash(auth.HashOf(secret)), r.Clock.Now().UTC()
	r.mu.Lock()
	due := r.Dir != "" && !now.Before(r.later[node]) && isDue(r.all.Node(node), shown, now)
	r.mu.Unlock()
	if !due {
		return ""
	}
	next := auth.NewToken(auth.PrefixNode)
	err := r.add(func(all *state.Credentials) error {
		n := all.Node(node)
		if !isDue(n, shown, now) || !alive() {
			return errNotDue
		}
		all.SetNode(state.Node{
			Node: node, Hash: state.Hash(auth.HashOf(next)), Since: now,
			Former: shown, Past: n.Past, Join: n.Join, Offered: true,
		})
		return nil
	})
	switch {
	case err == nil:
		return next
	case errors.Is(err, errNotDue):
		return ""
	}
	r.mu.Lock()
	r.later[node] = now.Add(retryAfter)
	r.mu.Unlock()
	r.Log.Error("a node's credential could not be replaced, it stays", "node", node, "error", err)
	return ""
}

// isDue reports whether the credential that was shown is to be replaced: it is old,
// or it is the former one of a replacement that has not arrived.
func isDue(n *state.Node, shown state.Hash, now time.Time) bool {
	switch {
	case n == nil:
		return false
	case n.Former == shown:
		return n.Offered // one that came by a join token is in other hands
	}
	age := now.Sub(n.Since)
	return n.Hash == shown && (age >= RotateAfter || age < -clockSlack)
}

// Replaced reports whether a secret that does not pass is the one that a node's
// present credential has replaced: a copy of it, or a node that has lost the new
// one.
func (r *Registry) Replaced(node, secret string) bool {
	shown := state.Hash(auth.HashOf(secret))
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.all.Node(node)
	return n != nil && !n.Past.IsZero() && subtle.ConstantTimeCompare(n.Past[:], shown[:]) == 1
}
