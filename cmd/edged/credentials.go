package edged

import (
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/services/admin"
	"github.com/iop-dev/iop/services/join"
)

// openCredentials takes over the secrets that were made on this Edge before.
func (e *Edge) openCredentials(snap *config.Snapshot) {
	e.secrets = credentials.Open(credentials.Options{
		Dir: snap.Config.GetEdge().GetStateDir(), Keyring: e.keyring, Clock: e.clock, Log: e.log,
		Fence: func(node string) bool { return e.link.Revoke(admission.NodeID(node)) },
	}, snap.Credentials)
	for _, w := range e.secrets.Apply(snap.Credentials) {
		e.log.Warn("credentials", "warning", w)
	}
}

// secretsOf makes and takes away secrets for the admin API, and logs who did.
type secretsOf struct{ *Edge }

// audit logs a call of an operator.
func (s secretsOf) audit(by admin.Caller, call string, err error, attrs ...any) {
	attrs = append([]any{"token", by.Token, "address", by.Address, "call", call}, attrs...)
	attrs = append(attrs, "ok", err == nil)
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Info("admin call", attrs...)
}

// CreateKey implements admin.Credentials.
func (s secretsOf) CreateKey(by admin.Caller, k credentials.NewKey) (secret string, made credentials.Key, err error) {
	err = s.modelsKnown(k.Models)
	if err == nil {
		secret, made, err = s.secrets.CreateKey(by.Token, k)
	}
	s.audit(by, "create key", err, "name", k.Name)
	return secret, made, err
}

// modelsKnown finds a model that is not configured.
func (e *Edge) modelsKnown(models []string) error {
	var known []string
	for _, m := range e.snapshot().Models {
		known = append(known, m.ID)
	}
	for _, m := range models {
		if !slices.Contains(known, m) {
			return notConfigured("model or route", m, known)
		}
	}
	return nil
}

// Keys implements admin.Credentials.
func (s secretsOf) Keys() (keys []credentials.Key, asked bool) {
	return s.secrets.Keys(), !s.keyring.Open()
}

// RevokeKey implements admin.Credentials.
func (s secretsOf) RevokeKey(by admin.Caller, name string) (credentials.RevokedKey, error) {
	out, err := s.secrets.RevokeKey(name)
	s.audit(by, "revoke key", err, "name", name, "durable", err == nil && out.Lost == nil)
	return out, err
}

// CreateJoinToken implements admin.Credentials.
func (s secretsOf) CreateJoinToken(by admin.Caller, node string, life time.Duration) (secret string, made credentials.Join, err error) {
	if nodes := nodesOf(s.snapshot()); !slices.Contains(nodes, admission.NodeID(node)) {
		err = notConfigured("node", node, names(nodes))
	} else {
		secret, made, err = s.secrets.CreateJoinToken(by.Token, node, life)
	}
	s.audit(by, "create join token", err, "node", node, "token_id", made.ID)
	return secret, made, err
}

// Nodes implements admin.Credentials.
func (s secretsOf) Nodes() (joins []credentials.Join, nodes []credentials.Node, connected map[string]bool) {
	joins, nodes = s.secrets.Nodes(names(nodesOf(s.snapshot())))
	connected = map[string]bool{}
	for _, n := range s.link.Nodes() {
		connected[string(n.Node)] = n.Connected
	}
	return joins, nodes, connected
}

// RevokeNode implements admin.Credentials.
func (s secretsOf) RevokeNode(by admin.Caller, node string) (credentials.RevokedNode, error) {
	out, err := s.secrets.RevokeNode(node)
	s.audit(by, "revoke node", err, "node", node, "was_connected", out.WasConnected, "join_tokens", out.JoinTokens, "durable", err == nil && out.Lost == nil)
	return out, err
}

// mountJoin mounts the one call that needs no credential before it.
func (e *Edge) mountJoin(mux *routes) {
	path, h := join.New(join.Config{
		Join: e.secrets.Join, Clock: e.clock, Log: e.log,
		EdgeID: e.snapshot().Config.GetEdge().GetId(), Software: e.version,
	}).Handler()
	mux.handle(path, e.browsers().API(h))
}
