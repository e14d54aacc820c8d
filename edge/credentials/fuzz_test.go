package credentials_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/credentials"
)

// FuzzJoin: nothing but the token itself, with its own node, is exchanged.
func FuzzJoin(f *testing.F) {
	r := credentials.Open(credentials.Options{
		Dir: filepath.Join(f.TempDir(), "state"), Keyring: auth.NewKeyring(auth.Credentials{}), Clock: clockwork.NewFakeClock(), Log: slog.New(slog.DiscardHandler),
	}, auth.Credentials{Joined: []string{"gx10", "mac"}})
	token, made, err := r.CreateJoinToken("me", "gx10", 0)
	require.NoError(f, err)
	spent, _, err := r.CreateJoinToken("me", "mac", 0)
	require.NoError(f, err)
	_, _, err = r.Join(spent, "mac")
	require.NoError(f, err)
	for _, seed := range []struct{ token, node string }{
		{"", ""}, {"", "gx10"}, {token, "mac"}, {token, "GX10"}, {token + " ", "gx10"}, {token[:len(token)-1], "gx10"}, {token + "\x00", "gx10"},
		{"iop-join-", "gx10"}, {spent, "mac"}, {spent, "gx10"}, {auth.HashToken(token), "gx10"}, {made.ID, "gx10"}, {"iop-join-\xff\xfe", "gx10"}, {"ｉop-join-", "gx10"},
	} {
		f.Add(seed.token, seed.node)
	}
	f.Fuzz(func(t *testing.T, shown, node string) {
		if shown == token && node == "gx10" {
			t.Skip()
		}
		credential, _, err := r.Join(shown, node)
		require.Error(t, err)
		require.Empty(t, credential)
		joins, _ := r.Nodes(nil)
		require.Len(t, joins, 1, "the token is not used up")
	})
}
