package auth_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
)

func hash(t *testing.T, secret string) auth.Hash {
	t.Helper()
	h, err := auth.ParseHash(auth.HashToken(secret))
	require.NoError(t, err)
	return h
}

func TestHashTokenIsSHA256InHex(t *testing.T) {
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", auth.HashToken("abc")) // FIPS 180-2
	upper, err := auth.ParseHash(strings.ToUpper(auth.HashToken("abc")))
	require.NoError(t, err)
	require.Equal(t, hash(t, "abc"), upper)
	for _, bad := range []string{"", "abc", strings.Repeat("g", 64), strings.Repeat("a", 63), strings.Repeat("a", 66)} {
		_, err := auth.ParseHash(bad)
		require.Error(t, err, bad)
	}
	_, err = auth.ParseHash("hunter2-MARK")
	require.NotContains(t, err.Error(), "MARK")
}

func TestNewTokenIsRandomAndLong(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := auth.NewToken("iop_key_")
		require.Regexp(t, `^iop_key_[A-Za-z0-9_-]{43}$`, token)
		require.False(t, seen[token])
		seen[token] = true
		secret, ok := auth.BearerToken("Bearer " + token)
		require.True(t, ok)
		require.Equal(t, token, secret)
	}
}

func TestCase_I15_BearerSpellings(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer k":      "k",
		"bearer k":      "k",
		"BEARER  k":     "k",
		"Bearer \t k ":  "k",
		"  Bearer k":    "k",
		"Bearer a=b/+.": "a=b/+.",
		"":              "",
		"Bearer":        "",
		"Bearer ":       "",
		"Bearer \t":     "",
		"Bearerk":       "",
		"Basic x":       "",
		"k":             "",
		"Bearer a b":    "",
		"Token k":       "",
	} {
		got, ok := auth.BearerToken(header)
		require.Equal(t, want, got, "%q", header)
		require.Equal(t, want != "", ok, "%q", header)
	}
}

func ring(t *testing.T) *auth.Keyring {
	t.Helper()
	return auth.NewKeyring(auth.Credentials{
		Keys: []auth.Key{
			{Name: "laptop", Hash: hash(t, "k1")},
			{Name: "phone", Hash: hash(t, "k2"), Models: []string{"a", "b"}, MaxConcurrent: 2},
		},
		Admin: []auth.Token{{Name: "me", Hash: hash(t, "a1")}},
		Read:  []auth.Token{{Name: "cp", Hash: hash(t, "r1")}, {Name: "cp2", Hash: hash(t, "r2")}},
		Nodes: []auth.Token{{Name: "n1", Hash: hash(t, "t1")}, {Name: "n2", Hash: hash(t, "t2")}},
	})
}

func TestEachSecretOpensItsOwnDoorOnly(t *testing.T) {
	k := ring(t)
	for secret, want := range map[string]string{"k1": "key laptop", "k2": "key phone", "a1": "admin me read me", "r1": "read cp", "r2": "read cp2", "t1": "node n1", "t2": "node n2", "": "", "k": "", "K1": "", "k1 ": ""} {
		var doors []string
		if key, ok := k.APIKey(secret); ok {
			doors = append(doors, "key "+key.Name())
		}
		if name, ok := k.Admin(secret); ok {
			doors = append(doors, "admin "+name)
		}
		if name, ok := k.Reader(secret); ok {
			doors = append(doors, "read "+name)
		}
		for _, node := range []string{"n1", "n2"} {
			known, ok := k.Node(node, secret)
			require.True(t, known)
			if ok {
				doors = append(doors, "node "+node)
			}
		}
		require.Equal(t, want, strings.Join(doors, " "), "%q", secret)
	}
	known, ok := k.Node("n3", "t1")
	require.False(t, known || ok)
}

// A keyring without entries lets nobody in, not even an empty secret.
func TestEmptyKeyringIsClosed(t *testing.T) {
	k := auth.NewKeyring(auth.Credentials{Admin: []auth.Token{{Name: "empty", Hash: hash(t, "")}}, Nodes: []auth.Token{{Name: "n", Hash: hash(t, "")}}})
	require.False(t, k.Open())
	_, ok := k.APIKey("")
	require.False(t, ok)
	_, ok = k.Admin("")
	require.False(t, ok)
	_, ok = k.Reader("")
	require.False(t, ok)
	_, ok = k.Node("n", "")
	require.False(t, ok)
	require.True(t, auth.NewKeyring(auth.Credentials{Open: true}).Open())
}

func TestKeyAllowsItsModels(t *testing.T) {
	k := ring(t)
	laptop, _ := k.APIKey("k1")
	phone, _ := k.APIKey("k2")
	require.True(t, laptop.Allows("anything"))
	require.True(t, phone.Allows("a"))
	require.False(t, phone.Allows("A"), "model ids are case-sensitive")
	require.False(t, phone.Allows("c"))
}

func TestKeyCountsItsRequests(t *testing.T) {
	phone, _ := ring(t).APIKey("k2")
	first, ok := phone.Admit()
	require.True(t, ok)
	_, ok = phone.Admit()
	require.True(t, ok)
	_, ok = phone.Admit()
	require.False(t, ok)
	first()
	first() // the second call gives no second place back
	require.Equal(t, 1, phone.Running())
	_, ok = phone.Admit()
	require.True(t, ok)
	_, ok = phone.Admit()
	require.False(t, ok)
	require.Equal(t, 2, phone.Limit())
}

func TestKeyLimitHoldsUnderLoad(t *testing.T) {
	phone, _ := ring(t).APIKey("k2")
	var inside, peak atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				release, ok := phone.Admit()
				if !ok {
					continue
				}
				if n := inside.Add(1); n > peak.Load() {
					peak.Store(n)
				}
				inside.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, peak.Load(), int64(2))
	require.Zero(t, phone.Running())
}

func TestApplyReplacesAtOnceAndKeepsCounts(t *testing.T) {
	k := ring(t)
	phone, _ := k.APIKey("k2")
	release, ok := phone.Admit()
	require.True(t, ok)

	k.Apply(auth.Credentials{Keys: []auth.Key{{Name: "renamed", Hash: hash(t, "k2"), MaxConcurrent: 1}}})
	_, ok = k.APIKey("k1")
	require.False(t, ok, "a removed key is refused")
	_, ok = k.Admin("a1")
	require.False(t, ok)
	renamed, ok := k.APIKey("k2")
	require.True(t, ok)
	require.Equal(t, "renamed", renamed.Name())
	_, ok = renamed.Admit()
	require.False(t, ok, "what runs since before the reload counts")

	// Gone for one reload and back: still the same requests.
	k.Apply(auth.Credentials{})
	k.Apply(auth.Credentials{Keys: []auth.Key{{Name: "back", Hash: hash(t, "k2"), MaxConcurrent: 1}}})
	back, _ := k.APIKey("k2")
	_, ok = back.Admit()
	require.False(t, ok)
	release()
	_, ok = back.Admit()
	require.True(t, ok)
}

func TestCase_I12_NothingPrintsHashes(t *testing.T) {
	h := hash(t, "k1")
	key, _ := ring(t).APIKey("k1")
	hex := auth.HashToken("k1")
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, value := range []any{h, auth.Key{Name: "laptop", Hash: h}, auth.Token{Name: "t", Hash: h}, key} {
			require.NotContains(t, fmt.Sprintf(format, value), hex[:8], format)
			require.NotContains(t, fmt.Sprintf(format, value), fmt.Sprintf("%v", h[0])+" "+fmt.Sprintf("%v", h[1]), format)
			require.NotContains(t, fmt.Sprintf(format, value), fmt.Sprintf("%#x", h[0])+", "+fmt.Sprintf("%#x", h[1]), format)
		}
	}
}

func BenchmarkAPIKey(b *testing.B) {
	var c auth.Credentials
	for i := range 100 {
		h, err := auth.ParseHash(auth.HashToken(fmt.Sprint(i)))
		if err != nil {
			b.Fatal(err)
		}
		c.Keys = append(c.Keys, auth.Key{Name: fmt.Sprint(i), Hash: h})
	}
	k := auth.NewKeyring(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := k.APIKey("99"); !ok {
			b.Fatal("not found")
		}
	}
}
