package admin

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/edge/credentials"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

// Credentials makes and takes away API keys and what nodes come with.
type Credentials interface {
	// CreateKey makes an API key; secret is told this once.
	CreateKey(Caller, credentials.NewKey) (secret string, made credentials.Key, err error)
	// Keys lists the API keys; asked is whether they are asked for at all.
	Keys() (keys []credentials.Key, asked bool)
	// RevokeKey takes an API key away.
	RevokeKey(by Caller, name string) (credentials.RevokedKey, error)
	// CreateJoinToken makes a join token for a node; a life of 0 is the longest.
	CreateJoinToken(by Caller, node string, life time.Duration) (secret string, made credentials.Join, err error)
	// Nodes lists the join tokens that serve, the credentials of nodes, and which of
	// them are connected.
	Nodes() (joins []credentials.Join, nodes []credentials.Node, connected map[string]bool)
	// RevokeNode takes a node's credential and join tokens away, and ends its session.
	RevokeNode(by Caller, node string) (credentials.RevokedNode, error)
}

// CreateKey makes an API key.
func (s *Service) CreateKey(ctx context.Context, req *adminv1.CreateKeyRequest) (*adminv1.CreateKeyResponse, error) {
	secret, made, err := s.Credentials.CreateKey(callerOf(ctx), credentials.NewKey{
		Name: req.GetName(), Models: req.GetModels(), MaxConcurrent: int(req.GetMaxConcurrent()),
	})
	if err != nil {
		return nil, rpcerr.From(err)
	}
	_, asked := s.Credentials.Keys()
	return &adminv1.CreateKeyResponse{Secret: secret, Key: keyMessage(made), AskedFor: asked}, nil
}

func keyMessage(k credentials.Key) *adminv1.ApiKey {
	source := credentials.OfState
	if k.OfFile {
		source = credentials.OfFile
	}
	return &adminv1.ApiKey{
		Name: k.Name, Source: string(source), Created: stamp(k.Created), By: k.By, Models: k.Models,
		MaxConcurrent: uint32(k.MaxConcurrent), Running: uint32(k.Running), RefusedBecause: k.Refused,
	}
}

// stamp is nil for a time that is not known.
func stamp(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

// ListKeys lists the API keys.
func (s *Service) ListKeys(context.Context, *adminv1.ListKeysRequest) (*adminv1.ListKeysResponse, error) {
	keys, asked := s.Credentials.Keys()
	res := &adminv1.ListKeysResponse{AskedFor: asked}
	for _, k := range keys {
		res.Keys = append(res.Keys, keyMessage(k))
	}
	return res, nil
}

// RevokeKey takes an API key away.
func (s *Service) RevokeKey(ctx context.Context, req *adminv1.RevokeKeyRequest) (*adminv1.RevokeKeyResponse, error) {
	out, err := s.Credentials.RevokeKey(callerOf(ctx), req.GetName())
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.RevokeKeyResponse{Durable: out.Lost == nil, NotDurableBecause: because(out.Lost), Running: uint32(out.Running)}, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// CreateJoinToken makes a join token.
func (s *Service) CreateJoinToken(ctx context.Context, req *adminv1.CreateJoinTokenRequest) (*adminv1.CreateJoinTokenResponse, error) {
	secret, made, err := s.Credentials.CreateJoinToken(callerOf(ctx), req.GetNode(), req.GetLife().AsDuration())
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.CreateJoinTokenResponse{Secret: secret, Token: joinMessage(made)}, nil
}

func joinMessage(j credentials.Join) *adminv1.JoinToken {
	return &adminv1.JoinToken{Id: j.ID, Node: j.Node, Created: stamp(j.Created), Expires: stamp(j.Expires), By: j.By}
}

// ListNodeCredentials lists what nodes come with.
func (s *Service) ListNodeCredentials(context.Context, *adminv1.ListNodeCredentialsRequest) (*adminv1.ListNodeCredentialsResponse, error) {
	joins, nodes, connected := s.Credentials.Nodes()
	res := &adminv1.ListNodeCredentialsResponse{}
	for _, j := range joins {
		res.JoinTokens = append(res.JoinTokens, joinMessage(j))
	}
	for _, n := range nodes {
		res.Nodes = append(res.Nodes, &adminv1.NodeCredential{
			Node: n.Node, Source: string(n.Source), Since: stamp(n.Since), LastUsed: stamp(n.Used), Connected: connected[n.Node],
			JoinedBy: n.Join, FormerPasses: n.FormerPasses, RefusedBecause: n.Refused,
		})
	}
	return res, nil
}

// RevokeNode takes a node's credential and join tokens away.
func (s *Service) RevokeNode(ctx context.Context, req *adminv1.RevokeNodeRequest) (*adminv1.RevokeNodeResponse, error) {
	out, err := s.Credentials.RevokeNode(callerOf(ctx), req.GetNode())
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.RevokeNodeResponse{
		Credential: out.Credential, JoinTokens: uint32(out.JoinTokens), WasConnected: out.WasConnected,
		Durable: out.Lost == nil, NotDurableBecause: because(out.Lost),
	}, nil
}
