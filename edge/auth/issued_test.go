package auth_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
)

func TestIssuedCredentialsPassBesideThoseOfTheFile(t *testing.T) {
	k := auth.NewKeyring(auth.Credentials{
		Keys:   []auth.Key{{Name: "laptop", Hash: hash(t, "k1")}},
		Admin:  []auth.Token{{Name: "me", Hash: hash(t, "a1")}},
		Nodes:  []auth.Token{{Name: "n1", Hash: hash(t, "t1")}},
		Joined: []string{"n2"},
	})
	known, ok := k.Node("n2", "c2")
	require.True(t, known, "it is configured")
	require.False(t, ok, "it has not joined")
	k.Issue(auth.Issued{
		Keys: []auth.Key{
			{Name: "phone", Hash: hash(t, "k2"), MaxConcurrent: 1}, {Name: "laptop", Hash: hash(t, "k3")},
			{Name: "x", Hash: hash(t, "k1")}, {Name: "y", Hash: hash(t, "a1")},
		},
		Nodes: []auth.Token{{Name: "n1", Hash: hash(t, "c1")}, {Name: "n2", Hash: hash(t, "c2")}, {Name: "n2", Hash: hash(t, "c2 former")}, {Name: "n3", Hash: hash(t, "c3")}},
	})
	for secret, want := range map[string]string{"k1": "laptop", "k2": "phone", "k3": "", "a1": "", "c2": ""} {
		key, _ := k.APIKey(secret)
		require.Equal(t, want, key.Name(), secret)
	}
	for _, c := range []struct {
		node, secret string
		known, ok    bool
	}{
		{"n1", "t1", true, true}, {"n1", "c1", true, false}, {"n2", "c2", true, true}, {"n2", "c2 former", true, true},
		{"n2", "t1", true, false}, {"n2", "", true, false}, {"n3", "c3", false, false}, {"n1", "c2", true, false},
	} {
		known, ok := k.Node(c.node, c.secret)
		require.Equal(t, [2]bool{c.known, c.ok}, [2]bool{known, ok}, "%s %s", c.node, c.secret)
	}
	require.True(t, k.Configured("laptop"))
	require.False(t, k.Configured("phone"))
	known, own := k.Configures("n1")
	require.True(t, known && own)
	known, own = k.Configures("n2")
	require.True(t, known && !own)

	// Counts go on over both kinds of change, and for a key that moves into the file.
	phone, _ := k.APIKey("k2")
	release, ok := phone.Admit()
	require.True(t, ok)
	k.Apply(auth.Credentials{Keys: []auth.Key{{Name: "phone", Hash: hash(t, "k2"), MaxConcurrent: 2}}})
	require.Equal(t, 1, k.Running(hash(t, "k2")))
	k.Issue(auth.Issued{})
	phone, _ = k.APIKey("k2")
	require.Equal(t, 1, phone.Running())
	require.Equal(t, 2, phone.Limit())
	release()
	require.Zero(t, k.Running(hash(t, "k2")))
	require.Zero(t, k.Running(hash(t, "nobody's")))
}
