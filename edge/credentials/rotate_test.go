package credentials_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/credentials"
)

// connected is a session that lives.
func connected() bool { return true }

// A session that is over is made no offer: it would take away the one that the
// session after it had.
func TestNothingIsOfferedToASessionThatIsOver(t *testing.T) {
	s := newSite(t)
	first := s.joined("gx10")
	s.clock.Advance(credentials.RotateAfter)
	next := s.Next("gx10", first, connected)
	require.NotEmpty(t, next)
	require.Empty(t, s.Next("gx10", first, func() bool { return false }))
	require.True(t, s.passes("gx10", next))
	require.NotContains(t, s.log.String(), "could not be replaced")
	require.NotEmpty(t, s.Next("gx10", first, connected), "it is no failure to wait after")
}

func TestU04_ACredentialIsReplacedAfterADay(t *testing.T) {
	s := newSite(t)
	first := s.joined("gx10")
	s.clock.Advance(credentials.RotateAfter - time.Second)
	require.Empty(t, s.Next("gx10", first, connected))
	s.clock.Advance(time.Second)
	require.Empty(t, s.Next("gx10", "guess", connected))
	require.Empty(t, s.Next("mac", first, connected))
	next := s.Next("gx10", first, connected)
	require.Regexp(t, `^iop-node-[A-Za-z0-9_-]{43}$`, next)
	require.True(t, s.passes("gx10", first), "until the next one is used")
	require.True(t, s.passes("gx10", next))
	require.False(t, s.Replaced("gx10", first))

	s.Used("gx10", first) // that is no use of the next one
	require.True(t, s.passes("gx10", first))
	s.Used("gx10", next)
	for range 2 {
		require.False(t, s.passes("gx10", first))
		require.True(t, s.passes("gx10", next))
		require.True(t, s.Replaced("gx10", first), "whoever shows it has a copy")
		require.False(t, s.Replaced("gx10", next))
		require.False(t, s.Replaced("gx10", "guess"))
		require.Empty(t, s.Next("gx10", next, connected))
		s.restart()
	}
	s.clock.Advance(credentials.RotateAfter)
	require.NotEmpty(t, s.Next("gx10", next, connected), "and so on")
}

// The Edge, or the way to the node, may fail at any point: the credential that the
// node has goes on working.
func TestARotationThatBreaksOffAnywhereLeavesACredentialThatWorks(t *testing.T) {
	for what, broken := range map[string]func(s *site, first string) (has string){
		"before the offer": func(s *site, first string) string { s.restart(); return first },
		"the offer is lost": func(s *site, first string) string {
			require.NotEmpty(t, s.Next("gx10", first, connected))
			return first
		},
		"the offer is lost and the Edge restarts": func(s *site, first string) string {
			require.NotEmpty(t, s.Next("gx10", first, connected))
			s.restart()
			return first
		},
		"a second offer is lost, too": func(s *site, first string) string {
			require.NotEmpty(t, s.Next("gx10", first, connected))
			s.Used("gx10", first) // the node comes back
			require.NotEmpty(t, s.Next("gx10", first, connected))
			s.restart()
			return first
		},
		"the node has it and nobody knows": func(s *site, first string) string { return s.Next("gx10", first, connected) },
		"the node has it and the Edge restarts": func(s *site, first string) string {
			next := s.Next("gx10", first, connected)
			s.restart()
			return next
		},
		"the proof cannot be kept": func(s *site, first string) string {
			next := s.Next("gx10", first, connected)
			free := s.block()
			s.Used("gx10", next)
			s.restart()
			free()
			return next
		},
		"the offer cannot be kept": func(s *site, first string) string {
			free := s.block()
			require.Empty(t, s.Next("gx10", first, connected))
			free()
			s.restart()
			return first
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			first := s.joined("gx10")
			s.clock.Advance(credentials.RotateAfter)
			has := broken(s, first)
			require.True(t, s.passes("gx10", has))
			s.Used("gx10", has)
			if has == first {
				has = s.Next("gx10", first, connected)
				require.NotEmpty(t, has, "it is offered again at once")
				s.Used("gx10", has)
			}
			s.restart()
			require.True(t, s.passes("gx10", has))
			require.False(t, s.passes("gx10", first))
		})
	}
}

// An offer that was not used is replaced by a later one, and passes no more.
func TestAnOfferThatWasLostEnds(t *testing.T) {
	s := newSite(t)
	first := s.joined("gx10")
	s.clock.Advance(credentials.RotateAfter)
	lost := s.Next("gx10", first, connected)
	again := s.Next("gx10", first, connected)
	require.NotEqual(t, lost, again)
	require.False(t, s.passes("gx10", lost))
	require.True(t, s.passes("gx10", again))
}

// A machine joins anew while its former self is still there: the former one is not
// offered anything in place of the new one's, and ends when that is used.
func TestAJoinIsNotUndoneByTheFormerMachine(t *testing.T) {
	s := newSite(t)
	former := s.joined("gx10")
	s.clock.Advance(credentials.RotateAfter)
	token, _, err := s.CreateJoinToken("me", "gx10", 0)
	require.NoError(t, err)
	anew, _, err := s.Join(token, "gx10")
	require.NoError(t, err)
	require.True(t, s.passes("gx10", former))
	require.Empty(t, s.Next("gx10", former, connected))
	s.restart()
	require.Empty(t, s.Next("gx10", former, connected))
	s.Used("gx10", anew)
	require.False(t, s.passes("gx10", former))
	require.True(t, s.passes("gx10", anew))
}

// A credential that nobody has used is worth nothing once there is another.
func TestAJoinReplacesOneThatWasNeverUsed(t *testing.T) {
	s := newSite(t)
	var got []string
	for range 2 {
		token, _, err := s.CreateJoinToken("me", "gx10", 0)
		require.NoError(t, err)
		credential, _, err := s.Join(token, "gx10")
		require.NoError(t, err)
		got = append(got, credential)
	}
	require.False(t, s.passes("gx10", got[0]))
	require.True(t, s.passes("gx10", got[1]))
}

// A revoked node's replacement does not bring it back.
func TestARevokedCredentialIsNotReplaced(t *testing.T) {
	s := newSite(t)
	first := s.joined("gx10")
	s.clock.Advance(credentials.RotateAfter)
	_, err := s.RevokeNode("gx10")
	require.NoError(t, err)
	require.Empty(t, s.Next("gx10", first, connected))
	require.False(t, s.Replaced("gx10", first))
}

// A clock that was set back does not stop the replacement for good.
func TestACredentialOfTheFutureIsReplaced(t *testing.T) {
	s := newSite(t)
	s.clock.Advance(1000 * time.Hour)
	first := s.joined("gx10")
	s.clock.Advance(-time.Hour)
	require.NotEmpty(t, s.Next("gx10", first, connected))
}
