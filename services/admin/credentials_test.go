package admin

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/edge/state"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
)

// secrets answer as they are told to.
type secrets struct {
	t    *testing.T
	err  error
	lost error
}

var moment = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (s secrets) CreateKey(by Caller, k credentials.NewKey) (string, credentials.Key, error) {
	require.Equal(s.t, operator, by)
	require.Equal(s.t, credentials.NewKey{Name: "laptop", Models: []string{"m"}, MaxConcurrent: 3}, k)
	return "iop-key-secret", credentials.Key{Name: k.Name, Created: moment, By: by.Token, Models: k.Models, MaxConcurrent: k.MaxConcurrent}, s.err
}

func (s secrets) Keys() ([]credentials.Key, bool) {
	return []credentials.Key{{Name: "filed", OfFile: true, Running: 2}, {Name: "laptop", Created: moment, Refused: "because"}}, true
}

func (s secrets) RevokeKey(by Caller, name string) (credentials.RevokedKey, error) {
	require.Equal(s.t, operator, by)
	require.Equal(s.t, "laptop", name)
	return credentials.RevokedKey{Running: 4, Lost: s.lost}, s.err
}

func (s secrets) CreateJoinToken(by Caller, node string, life time.Duration) (string, credentials.Join, error) {
	require.Equal(s.t, operator, by)
	return "iop-join-secret", credentials.Join{ID: "5f", Node: node, By: by.Token, Created: moment, Expires: moment.Add(life)}, s.err
}

func (s secrets) Nodes() ([]credentials.Join, []credentials.Node, map[string]bool) {
	return []credentials.Join{{ID: "5f", Node: "n"}},
		[]credentials.Node{{Node: "n"}, {Node: "m", Source: credentials.OfState, Since: moment, Used: moment, Join: "4e", FormerPasses: true, Refused: "because"}},
		map[string]bool{"m": true}
}

func (s secrets) RevokeNode(by Caller, node string) (credentials.RevokedNode, error) {
	require.Equal(s.t, operator, by)
	return credentials.RevokedNode{Credential: true, JoinTokens: 2, WasConnected: true, Lost: s.lost}, s.err
}

func TestSecretsAreToldOnceAndListedWithout(t *testing.T) {
	s := &Service{Credentials: secrets{t: t}}
	ctx := WithCaller(t.Context(), operator)
	key, err := s.CreateKey(ctx, &adminv1.CreateKeyRequest{Name: "laptop", Models: []string{"m"}, MaxConcurrent: 3})
	require.NoError(t, err)
	require.Equal(t, "iop-key-secret", key.GetSecret())
	require.True(t, key.GetAskedFor())
	require.Equal(t, "laptop state operator", key.GetKey().GetName()+" "+key.GetKey().GetSource()+" "+key.GetKey().GetBy())
	require.Equal(t, moment, key.GetKey().GetCreated().AsTime())
	require.EqualValues(t, 3, key.GetKey().GetMaxConcurrent())
	keys, err := s.ListKeys(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "file state", keys.GetKeys()[0].GetSource()+" "+keys.GetKeys()[1].GetSource())
	require.Nil(t, keys.GetKeys()[0].GetCreated(), "it is not known")
	require.EqualValues(t, 2, keys.GetKeys()[0].GetRunning())
	require.Equal(t, "because", keys.GetKeys()[1].GetRefusedBecause())

	token, err := s.CreateJoinToken(ctx, &adminv1.CreateJoinTokenRequest{Node: "n", Life: durationpb.New(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, "iop-join-secret 5f n operator", token.GetSecret()+" "+token.GetToken().GetId()+" "+token.GetToken().GetNode()+" "+token.GetToken().GetBy())
	require.Equal(t, moment.Add(time.Hour), token.GetToken().GetExpires().AsTime())
	token, err = s.CreateJoinToken(ctx, &adminv1.CreateJoinTokenRequest{Node: "n"})
	require.NoError(t, err)
	require.Equal(t, moment, token.GetToken().GetExpires().AsTime(), "0: as long as the Edge has it")

	nodes, err := s.ListNodeCredentials(ctx, nil)
	require.NoError(t, err)
	require.Len(t, nodes.GetJoinTokens(), 1)
	require.Equal(t, []string{"", "state"}, []string{nodes.GetNodes()[0].GetSource(), nodes.GetNodes()[1].GetSource()})
	m := nodes.GetNodes()[1]
	require.True(t, m.GetConnected() && m.GetFormerPasses() && !nodes.GetNodes()[0].GetConnected())
	require.Equal(t, "4e because", m.GetJoinedBy()+" "+m.GetRefusedBecause())
	require.Equal(t, moment, m.GetLastUsed().AsTime())
}

func TestARevocationSaysWhetherItLasts(t *testing.T) {
	ctx := WithCaller(t.Context(), operator)
	for _, lost := range []error{nil, errors.New("the disk is full")} {
		s := &Service{Credentials: secrets{t: t, lost: lost}}
		key, err := s.RevokeKey(ctx, &adminv1.RevokeKeyRequest{Name: "laptop"})
		require.NoError(t, err)
		require.EqualValues(t, 4, key.GetRunning())
		node, err := s.RevokeNode(ctx, &adminv1.RevokeNodeRequest{Node: "n"})
		require.NoError(t, err)
		require.True(t, node.GetCredential() && node.GetWasConnected())
		require.EqualValues(t, 2, node.GetJoinTokens())
		require.Equal(t, [2]bool{lost == nil, lost == nil}, [2]bool{key.GetDurable(), node.GetDurable()})
		require.Equal(t, because(lost), key.GetNotDurableBecause())
		require.Equal(t, because(lost), node.GetNotDurableBecause())
	}
}

func TestErrorsOfSecretsHaveCodes(t *testing.T) {
	ctx := WithCaller(t.Context(), operator)
	for _, c := range []struct {
		err  error
		want connect.Code
	}{
		{&credentials.HeldByFileError{What: "API key", Name: "x"}, connect.CodeFailedPrecondition},
		{&credentials.ExistsError{What: "API key", Name: "x"}, connect.CodeAlreadyExists},
		{&credentials.UnknownError{What: "API key", Name: "x"}, connect.CodeNotFound},
		{&credentials.TooManyError{What: "API keys", Most: 1}, connect.CodeResourceExhausted},
		{&credentials.NotKeptError{Err: errors.New("no space left")}, connect.CodeUnavailable},
		{state.ErrNoCredentialsDir, connect.CodeFailedPrecondition},
		{errors.New("/etc/secret: broken"), connect.CodeInternal},
	} {
		s := &Service{Credentials: secrets{t: t, err: c.err}}
		key, err := s.CreateKey(ctx, &adminv1.CreateKeyRequest{Name: "laptop", Models: []string{"m"}, MaxConcurrent: 3})
		require.Nil(t, key, "no secret beside an error")
		require.Equal(t, c.want, connect.CodeOf(err), "%v", err)
		_, err = s.RevokeKey(ctx, &adminv1.RevokeKeyRequest{Name: "laptop"})
		require.Equal(t, c.want, connect.CodeOf(err), "%v", err)
		token, err := s.CreateJoinToken(ctx, &adminv1.CreateJoinTokenRequest{Node: "n"})
		require.Nil(t, token)
		require.Equal(t, c.want, connect.CodeOf(err), "%v", err)
		_, err = s.RevokeNode(ctx, &adminv1.RevokeNodeRequest{Node: "n"})
		require.Equal(t, c.want, connect.CodeOf(err), "%v", err)
		require.NotContains(t, err.Error(), "secret:")
	}
}
