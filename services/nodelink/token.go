package nodelink

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/proto/framecodec"
)

// tokenHash is the SHA-256 of a generation token: looking a hash up tells an
// attacker nothing about the tokens by its timing.
type tokenHash [sha256.Size]byte

func hashToken(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// keptPast is how many tokens of generations that are over are remembered, only
// to tell "stale" from "unknown".
const keptPast = 4096

// tokens are the generation tokens of an Edge.
type tokens struct {
	live  map[tokenHash]*session
	past  map[tokenHash]struct{}
	order []tokenHash // of past, oldest first
}

func (t *tokens) retire(h tokenHash) {
	if t.live[h] == nil {
		return
	}
	delete(t.live, h)
	t.past[h] = struct{}{}
	t.order = append(t.order, h)
	if len(t.order) > keptPast {
		delete(t.past, t.order[0])
		t.order = slices.Delete(t.order, 0, 1)
	}
}

// Why a work stream is refused for what it shows at its opening. A node is told
// the same of the first three, which it heals alike: by a new session.
var (
	errNoToken      = connect.NewError(connect.CodeUnauthenticated, errors.New("no generation token: register first"))
	errUnknownToken = connect.NewError(connect.CodeUnauthenticated, errors.New("the generation token is stale or unknown: register again"))
	errStaleToken   = connect.NewError(connect.CodeUnauthenticated, errors.New("the generation token is stale or unknown: register again"))
	errReplayed     = connect.NewError(connect.CodeAlreadyExists, errors.New("this "+framecodec.HeaderStreamID+" was used before in this session"))
)

// vet is the one place that judges the token of a work stream and maps it to its
// session (S12).
func (s *Service) vet(header http.Header) (owner *session, id uint32, err error) {
	token := header.Get(framecodec.HeaderGenerationToken)
	if token == "" {
		return nil, 0, errNoToken
	}
	hash := hashToken(token)
	s.mu.RLock()
	owner = s.tokens.live[hash]
	_, past := s.tokens.past[hash]
	s.mu.RUnlock()
	switch {
	case past, owner != nil && owner.fenced.Load():
		return nil, 0, errStaleToken
	case owner == nil:
		return nil, 0, errUnknownToken
	}
	number, err := strconv.ParseUint(header.Get(framecodec.HeaderStreamID), 10, 32)
	if err != nil || number == 0 {
		return nil, 0, connect.NewError(connect.CodeInvalidArgument, errors.New(framecodec.HeaderStreamID+" must be a decimal number from 1 to 4294967295"))
	}
	return owner, uint32(number), nil
}

// refuseStream counts the refusal of a work stream by its kind and returns it.
func (s *Service) refuseStream(err error, remote string) error {
	kind := "other"
	switch {
	case errors.Is(err, errNoToken):
		kind = "missing"
		s.counters.missingTokens.Add(1)
	case errors.Is(err, errUnknownToken):
		kind = "unknown"
		s.counters.unknownTokens.Add(1)
	case errors.Is(err, errStaleToken):
		kind = "stale"
		s.counters.staleTokens.Add(1)
	case errors.Is(err, errReplayed):
		kind = "replayed"
		s.counters.replayedTokens.Add(1)
	}
	s.log.warn("stream "+kind, "work stream refused", "kind", kind, "remote", remote, "error", err)
	return err
}

func (s *Service) setToken(owner *session) {
	s.mu.Lock()
	s.tokens.live[owner.tokenHash] = owner
	s.mu.Unlock()
}

func (s *Service) dropToken(owner *session) {
	s.mu.Lock()
	s.tokens.retire(owner.tokenHash)
	s.mu.Unlock()
}

// usedIDs are the stream ids that a session has used: one that comes again is a
// replay of an opening. A node counts them up from 1 and opens several at once, so
// that they come nearly in order.
type usedIDs struct {
	upTo  uint32              // all of them, from 1
	above map[uint32]struct{} // and these
}

// maxGaps bounds what is remembered above a gap: ids that a node has skipped count
// as used in the end.
const maxGaps = 2 * maxStreams

// take notes an id; false if it was used before.
func (u *usedIDs) take(id uint32) bool {
	if _, used := u.above[id]; used || id <= u.upTo {
		return false
	}
	if u.above == nil {
		u.above = map[uint32]struct{}{}
	}
	u.above[id] = struct{}{}
	if len(u.above) > maxGaps {
		seen := slices.Sorted(maps.Keys(u.above))
		u.upTo = seen[len(seen)/2]
		maps.DeleteFunc(u.above, func(id uint32, _ struct{}) bool { return id <= u.upTo })
	}
	for {
		if _, next := u.above[u.upTo+1]; !next {
			return true
		}
		u.upTo++
		delete(u.above, u.upTo)
	}
}

// errTooManyStreams refuses a stream beyond maxStreams.
var errTooManyStreams = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("a node may open at most %d work streams", maxStreams))
