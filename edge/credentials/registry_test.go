package credentials_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/edge/state"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// lockedBuffer is a log to search.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// site is an Edge's credentials, with the file that it starts with.
type site struct {
	t       *testing.T
	dir     string
	clock   *clockwork.FakeClock
	keyring *auth.Keyring
	log     *lockedBuffer
	own     auth.Credentials
	fence   func(string) bool
	*credentials.Registry
}

func newSite(t *testing.T) *site {
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "state"), clock: clockwork.NewFakeClockAt(start), log: &lockedBuffer{}}
	s.own = auth.Credentials{
		Keys:   []auth.Key{{Name: "filed", Hash: auth.HashOf("filed-key")}},
		Admin:  []auth.Token{{Name: "me", Hash: auth.HashOf("admin-token")}},
		Nodes:  []auth.Token{{Name: "old", Hash: auth.HashOf("old-token")}},
		Joined: []string{"gx10", "mac"},
	}
	s.restart()
	t.Cleanup(func() { s.Close() }) // of the last restart: no write outlives the folder
	return s
}

// restart is an Edge that ends and starts again.
func (s *site) restart() {
	s.t.Helper()
	if s.Registry != nil {
		s.Close()
	}
	s.keyring = auth.NewKeyring(auth.Credentials{})
	s.Registry = credentials.Open(credentials.Options{
		Dir: s.dir, Keyring: s.keyring, Clock: s.clock, Log: slog.New(slog.NewTextHandler(s.log, nil)),
		Fence: func(node string) bool { return s.fence != nil && s.fence(node) },
	}, s.own)
}

// block makes writes fail until the function that it returns is called.
func (s *site) block() (free func()) {
	s.t.Helper()
	s.Close() // what is on its way has been written
	next := filepath.Join(s.dir, "credentials.json.next")
	require.NoError(s.t, os.MkdirAll(filepath.Join(next, "inside"), 0o700))
	return func() { require.NoError(s.t, os.RemoveAll(next)) }
}

func (s *site) passes(node, secret string) bool {
	_, ok := s.keyring.Node(node, secret)
	return ok
}

// joined is a node with a credential that it has used.
func (s *site) joined(node string) (credential string) {
	s.t.Helper()
	token, _, err := s.CreateJoinToken("me", node, 0)
	require.NoError(s.t, err)
	credential, _, err = s.Join(token, node)
	require.NoError(s.t, err)
	s.Used(node, credential)
	return credential
}

// kept is what the disk has.
func (s *site) kept() state.Credentials {
	s.t.Helper()
	s.Close()
	all, err := state.ReadCredentials(s.dir)
	require.NoError(s.t, err)
	return all
}

func TestAKeyIsMadeOnceKeptHashedAndRevoked(t *testing.T) {
	s := newSite(t)
	secret, made, err := s.CreateKey("me", credentials.NewKey{Name: "laptop", Models: []string{"m"}, MaxConcurrent: 3})
	require.NoError(t, err)
	require.Regexp(t, `^iop-key-[A-Za-z0-9_-]{43}$`, secret)
	require.Equal(t, credentials.Key{Name: "laptop", Created: start, By: "me", Models: []string{"m"}, MaxConcurrent: 3}, made)

	text, err := os.ReadFile(filepath.Join(s.dir, "credentials.json"))
	require.NoError(t, err)
	require.NotContains(t, string(text), secret)
	require.Contains(t, string(text), auth.HashToken(secret))

	for range 2 {
		key, ok := s.keyring.APIKey(secret)
		require.True(t, ok)
		require.Equal(t, "laptop", key.Name())
		require.False(t, key.Allows("x"))
		require.Equal(t, 3, key.Limit())
		s.restart()
	}
	key, _ := s.keyring.APIKey(secret)
	release, ok := key.Admit()
	require.True(t, ok)
	defer release()
	keys := s.Keys()
	require.Equal(t, "filed laptop", keys[0].Name+" "+keys[1].Name)
	require.True(t, keys[0].OfFile)
	require.Equal(t, 1, keys[1].Running)

	out, err := s.RevokeKey("laptop")
	require.NoError(t, err)
	require.NoError(t, out.Lost)
	require.Equal(t, 1, out.Running)
	for range 2 {
		_, ok = s.keyring.APIKey(secret)
		require.False(t, ok)
		s.restart()
	}
	_, err = s.RevokeKey("laptop")
	require.ErrorContains(t, err, `no API key "laptop"`)
	require.NotContains(t, s.log.String(), secret)
}

func TestNamesAreUniqueOverFileAndState(t *testing.T) {
	s := newSite(t)
	_, _, err := s.CreateKey("me", credentials.NewKey{Name: "filed"})
	require.ErrorContains(t, err, "edit the file")
	_, err = s.RevokeKey("filed")
	require.ErrorContains(t, err, "edit the file")
	secret, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	_, _, err = s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.ErrorContains(t, err, "already")

	// A refresh puts a key of that name into the file: it wins, and the other is told of.
	own := s.own
	own.Keys = append(own.Keys[:1:1], auth.Key{Name: "laptop", Hash: auth.HashOf("other")})
	warnings := s.Apply(own)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "laptop")
	_, ok := s.keyring.APIKey(secret)
	require.False(t, ok)
	_, ok = s.keyring.APIKey("other")
	require.True(t, ok)
	require.Contains(t, s.Keys()[2].Refused, "openai.api_keys")
	_, err = s.RevokeKey("laptop")
	require.NoError(t, err, "the one of the state, that the file hides")
	_, ok = s.keyring.APIKey("other")
	require.True(t, ok)
}

// The same secret under another name, or in another role, does not pass twice.
func TestASecretOfTheFileIsTheFiles(t *testing.T) {
	s := newSite(t)
	secret, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	for _, own := range []auth.Credentials{
		{Keys: []auth.Key{{Name: "x", Hash: auth.HashOf(secret), MaxConcurrent: 1}}},
		{Read: []auth.Token{{Name: "x", Hash: auth.HashOf(secret)}}},
	} {
		require.Len(t, s.Apply(own), 1)
		key, ok := s.keyring.APIKey(secret)
		require.Equal(t, len(own.Keys) > 0, ok)
		if ok {
			require.Equal(t, "x", key.Name())
		}
	}
	require.Empty(t, s.Apply(s.own))
	_, ok := s.keyring.APIKey(secret)
	require.True(t, ok, "a refresh keeps what was made")
}

func TestU04_AJoinTokenServesItsNodeOnce(t *testing.T) {
	s := newSite(t)
	token, made, err := s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	require.Regexp(t, `^iop-join-[A-Za-z0-9_-]{43}$`, token)
	require.Equal(t, start.Add(24*time.Hour), made.Expires)
	_, short, err := s.CreateJoinToken("me", "mac", time.Minute)
	require.NoError(t, err)
	require.Equal(t, start.Add(time.Minute), short.Expires)

	for _, wrong := range []struct{ token, node string }{{token, "mac"}, {"iop-join-guess", "gx10"}, {"", "gx10"}, {"filed-key", "gx10"}} {
		_, _, err := s.Join(wrong.token, wrong.node)
		require.Equal(t, credentials.ErrJoinRefused, err, "nothing tells one from the other")
	}
	credential, id, err := s.Join(token, "gx10")
	require.NoError(t, err)
	require.Equal(t, made.ID, id)
	require.Regexp(t, `^iop-node-[A-Za-z0-9_-]{43}$`, credential)
	require.True(t, s.passes("gx10", credential))
	require.False(t, s.passes("mac", credential), "it is bound to its node")
	require.False(t, s.passes("gx10", token), "a join token is no credential")
	_, ok := s.keyring.APIKey(credential)
	require.False(t, ok)

	_, _, err = s.Join(token, "gx10")
	var spent *credentials.SpentError
	require.ErrorAs(t, err, &spent)
	require.ErrorContains(t, err, "was used at 2026-03-01T12:00:00Z")
	_, _, err = s.Join(token, "mac")
	require.Equal(t, credentials.ErrJoinRefused, err, "only its node learns that it was used")
	s.restart()
	require.True(t, s.passes("gx10", credential))
	_, _, err = s.Join(token, "gx10")
	require.ErrorAs(t, err, &spent)

	joins, nodes := s.Nodes([]string{"old", "gx10", "mac"})
	require.Len(t, joins, 1, "the one that was used is over")
	require.Equal(t, "mac", joins[0].Node)
	require.Equal(t, []credentials.Source{credentials.OfFile, credentials.OfState, credentials.Nowhere}, []credentials.Source{nodes[0].Source, nodes[1].Source, nodes[2].Source})
	require.Equal(t, id, nodes[1].Join)
	all := string(mustRead(t, s.dir))
	require.NotContains(t, all, token)
	require.NotContains(t, all, credential)
}

func mustRead(t *testing.T, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "credentials.json"))
	require.NoError(t, err)
	return text
}

func TestU04_AJoinTokenExpires(t *testing.T) {
	s := newSite(t)
	token, _, err := s.CreateJoinToken("me", "gx10", 48*time.Hour)
	require.NoError(t, err)
	s.clock.Advance(24*time.Hour - time.Second)
	joins, _ := s.Nodes(nil)
	require.Len(t, joins, 1)
	s.clock.Advance(time.Second)
	joins, _ = s.Nodes(nil)
	require.Empty(t, joins)
	_, _, err = s.Join(token, "gx10")
	require.ErrorContains(t, err, "expired at 2026-03-02T12:00:00Z")

	// Long after, nothing is remembered of it.
	s.clock.Advance(8 * 24 * time.Hour)
	_, _, err = s.CreateJoinToken("me", "mac", 0)
	require.NoError(t, err)
	_, _, err = s.Join(token, "gx10")
	require.Equal(t, credentials.ErrJoinRefused, err)
}

// A clock that was far ahead when a token was made gives it no longer life.
func TestAJoinTokenOfTheFutureDoesNotServe(t *testing.T) {
	s := newSite(t)
	s.clock.Advance(1000 * time.Hour)
	token, _, err := s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	s.clock = clockwork.NewFakeClockAt(start)
	s.restart()
	_, _, err = s.Join(token, "gx10")
	var spent *credentials.SpentError
	require.ErrorAs(t, err, &spent)
}

func TestOnlyConfiguredNodesWithoutATokenOfTheFileJoin(t *testing.T) {
	s := newSite(t)
	_, _, err := s.CreateJoinToken("me", "nobody", 0)
	require.ErrorContains(t, err, `no node "nobody"`)
	_, _, err = s.CreateJoinToken("me", "old", 0)
	require.ErrorContains(t, err, "edit the file")
	_, err = s.RevokeNode("old")
	require.ErrorContains(t, err, "edit the file")
	_, err = s.RevokeNode("nobody")
	require.ErrorContains(t, err, `no node "nobody"`)
	_, err = s.RevokeNode("mac")
	require.ErrorContains(t, err, "no credential or join token")

	// The file is changed between token and use.
	token, _, err := s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	own := s.own
	own.Joined, own.Nodes = []string{"mac"}, []auth.Token{{Name: "gx10", Hash: auth.HashOf("t")}}
	s.Apply(own)
	_, _, err = s.Join(token, "gx10")
	require.ErrorContains(t, err, "edit the file")
	own.Nodes = nil
	s.Apply(own)
	_, _, err = s.Join(token, "gx10")
	require.ErrorContains(t, err, `no node "gx10"`)
	s.Apply(s.own)
	_, _, err = s.Join(token, "gx10")
	require.NoError(t, err, "it was not spent by that")
}

// The file's word on a node hides its credential, and gives it back.
func TestATokenOfTheFileHidesACredential(t *testing.T) {
	s := newSite(t)
	credential := s.joined("gx10")
	own := s.own
	own.Joined, own.Nodes = []string{"mac"}, []auth.Token{{Name: "gx10", Hash: auth.HashOf("t")}}
	require.Equal(t, []string{"the credential of node gx10 does not pass: the file has a token for it"}, s.Apply(own))
	require.False(t, s.passes("gx10", credential))
	require.True(t, s.passes("gx10", "t"))
	own.Nodes = nil
	require.Equal(t, []string{"the credential of node gx10 does not pass: the file does not have the node"}, s.Apply(own))
	known, ok := s.keyring.Node("gx10", credential)
	require.False(t, known || ok)
	require.Empty(t, s.Apply(s.own))
	require.True(t, s.passes("gx10", credential))
}

// Two that use one token at the same moment: one has the credential.
func TestU04_OfTwoJoinsAtOnceOneWins(t *testing.T) {
	s := newSite(t)
	for range 20 {
		token, _, err := s.CreateJoinToken("me", "gx10", 0)
		require.NoError(t, err)
		var mu sync.Mutex
		var won []string
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-gate
				credential, _, err := s.Join(token, "gx10")
				mu.Lock()
				defer mu.Unlock()
				var spent *credentials.SpentError
				if err == nil {
					won = append(won, credential)
				} else if !errors.As(err, &spent) {
					t.Errorf("%v", err)
				}
			})
		}
		close(gate)
		wg.Wait()
		require.Len(t, won, 1)
		require.True(t, s.passes("gx10", won[0]))
	}
}

// Nothing is given out that a restart would not know.
func TestASecretThatCannotBeKeptIsNotGivenOut(t *testing.T) {
	s := newSite(t)
	token, _, err := s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	old := s.joined("mac")
	free := s.block()
	var notKept *credentials.NotKeptError
	secret, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.ErrorAs(t, err, &notKept)
	require.Empty(t, secret)
	require.Len(t, s.Keys(), 1)
	_, _, err = s.CreateJoinToken("me", "gx10", 0)
	require.ErrorAs(t, err, &notKept)
	_, _, err = s.Join(token, "gx10")
	require.ErrorAs(t, err, &notKept)
	s.clock.Advance(credentials.RotateAfter)
	require.Empty(t, s.Next("mac", old, connected))
	require.Contains(t, s.log.String(), "could not be replaced")
	require.True(t, s.passes("mac", old))
	free()
	require.Empty(t, s.Next("mac", old, connected), "not at once again")
	s.clock.Advance(10 * time.Minute)
	require.NotEmpty(t, s.Next("mac", old, connected))
	token, _, err = s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	_, _, err = s.Join(token, "gx10")
	require.NoError(t, err)
}

// A revocation acts though the disk is full, says that it would not outlast a
// restart, and is written when it can be.
func TestARevocationActsOnAFullDisk(t *testing.T) {
	s := newSite(t)
	secret, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	credential := s.joined("gx10")
	require.Len(t, s.kept().Keys, 1)
	free := s.block()
	key, err := s.RevokeKey("laptop")
	require.NoError(t, err)
	require.Error(t, key.Lost)
	node, err := s.RevokeNode("gx10")
	require.NoError(t, err)
	require.Error(t, node.Lost)
	_, ok := s.keyring.APIKey(secret)
	require.False(t, ok)
	require.False(t, s.passes("gx10", credential))
	require.Contains(t, s.Problem(), "would pass again after a restart")
	require.Contains(t, s.log.String(), "would pass again after a restart")

	free()
	s.Apply(s.own) // a refresh tries again
	require.Empty(t, s.kept().Keys)
	require.Empty(t, s.kept().Nodes)
	require.Empty(t, s.Problem())

	// So does what is made next.
	secret, _, err = s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	free = s.block()
	key, err = s.RevokeKey("laptop")
	require.NoError(t, err)
	require.Error(t, key.Lost)
	free()
	_, _, err = s.CreateKey("me", credentials.NewKey{Name: "phone"})
	require.NoError(t, err)
	require.Empty(t, s.Problem())
	s.restart()
	_, ok = s.keyring.APIKey(secret)
	require.False(t, ok)
}

func TestARevokedNodeIsFencedAndItsTokensEnd(t *testing.T) {
	s := newSite(t)
	credential := s.joined("gx10")
	token, _, err := s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	other, _, err := s.CreateJoinToken("me", "mac", 0)
	require.NoError(t, err)
	var fenced []string
	s.fence = func(node string) bool {
		require.False(t, s.passes(node, credential), "it passes no more when its session ends")
		fenced = append(fenced, node)
		return true
	}
	out, err := s.RevokeNode("gx10")
	require.NoError(t, err)
	require.Equal(t, credentials.RevokedNode{Credential: true, JoinTokens: 1, WasConnected: true}, out)
	require.Equal(t, []string{"gx10"}, fenced)
	_, _, err = s.Join(token, "gx10")
	require.Equal(t, credentials.ErrJoinRefused, err)
	_, _, err = s.Join(other, "mac")
	require.NoError(t, err)
	s.restart()
	require.False(t, s.passes("gx10", credential))
	require.True(t, s.passes("gx10", s.joined("gx10")), "it may join again")
}

// While a join is being kept its node is revoked: the revocation is the last word.
func TestARevocationDuringAJoinWins(t *testing.T) {
	s := newSite(t)
	for range 50 {
		token, _, err := s.CreateJoinToken("me", "gx10", 0)
		require.NoError(t, err)
		var credential string
		var joined, revoked error
		var wg sync.WaitGroup
		gate := make(chan struct{})
		wg.Go(func() { <-gate; credential, _, joined = s.Join(token, "gx10") })
		wg.Go(func() { <-gate; _, revoked = s.RevokeNode("gx10") })
		close(gate)
		wg.Wait()
		require.NoError(t, revoked, "there was a token, or a credential")
		if joined == nil {
			require.False(t, s.passes("gx10", credential))
		} else {
			require.Equal(t, credentials.ErrJoinRefused, joined)
		}
		require.Empty(t, s.kept().Nodes)
		require.Empty(t, s.kept().Joins)
	}
}

// A file that cannot be used lets nobody in, and says so until something is kept
// again.
func TestOfAnUnreadableFileNothingPasses(t *testing.T) {
	s := newSite(t)
	secret, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	credential := s.joined("gx10")
	s.Close()
	text := string(mustRead(t, s.dir))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "credentials.json"), []byte(strings.Replace(text, "laptop", "laptoq", 1)), 0o600))
	s.restart()
	_, ok := s.keyring.APIKey(secret)
	require.False(t, ok)
	require.False(t, s.passes("gx10", credential))
	_, ok = s.keyring.APIKey("filed-key")
	require.True(t, ok, "the file's do")
	require.Contains(t, s.Problem(), "none of the API keys")
	require.Contains(t, s.log.String(), "no kept credential passes")
	_, _, err = s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	require.Empty(t, s.Problem())
}

func TestWithoutAStateFolderNothingCanBeMade(t *testing.T) {
	s := newSite(t)
	s.dir = ""
	s.restart()
	_, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.ErrorIs(t, err, state.ErrNoCredentialsDir)
	_, _, err = s.CreateJoinToken("me", "gx10", 0)
	require.ErrorIs(t, err, state.ErrNoCredentialsDir)
	_, err = s.RevokeKey("laptop")
	require.Error(t, err)
	require.Empty(t, s.Next("gx10", "x", connected))
}

// A write that failed is tried again by itself, though not all the time.
func TestARevocationIsWrittenWhenThereIsRoomAgain(t *testing.T) {
	s := newSite(t)
	_, _, err := s.CreateKey("me", credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	failures := func() int {
		s.Close()
		return strings.Count(s.log.String(), "would pass again after a restart\" error")
	}
	s.Retry()
	require.Zero(t, failures())
	free := s.block()
	out, err := s.RevokeKey("laptop")
	require.NoError(t, err)
	require.Error(t, out.Lost)
	require.Equal(t, 1, failures())
	s.Retry()
	require.Equal(t, 1, failures(), "not at once")
	s.clock.Advance(time.Minute)
	s.Retry()
	s.Retry()
	require.Equal(t, 2, failures())
	free()
	s.clock.Advance(time.Minute)
	s.Retry()
	require.Empty(t, s.kept().Keys)
	require.Empty(t, s.Problem())
}
