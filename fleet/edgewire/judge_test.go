package edgewire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet/edgewire"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const token = "iop_read_MARK"

// read reads a snapshot of what answers.
func read(t *testing.T, answer http.HandlerFunc) (*controlv1.EdgeNodeSnapshot, error) {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	edge := edgewire.New(server.URL, token, nil)
	defer edge.Close()
	return edge.Snapshot(t.Context())
}

// raw answers with the bytes of a GetEdgeNodeSnapshotResponse.
func raw(text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(text)
	}
}

func packed(t *testing.T, s *controlv1.EdgeNodeSnapshot) []byte {
	t.Helper()
	text, err := proto.Marshal(&controlv1.GetEdgeNodeSnapshotResponse{Snapshot: s})
	require.NoError(t, err)
	return text
}

func TestAnAnswerIsReadAsItIs(t *testing.T) {
	s := &controlv1.EdgeNodeSnapshot{
		EdgeId: "home", At: timestamppb.Now(), Nodes: []*controlv1.NodeSnapshot{{Id: "n", LastSeen: timestamppb.Now()}},
		EstimateScales: []*controlv1.EstimateScale{{Factor: math.Inf(1)}},
	}
	s.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) // of a newer Edge
	got, err := read(t, raw(packed(t, s)))
	require.NoError(t, err)
	require.True(t, proto.Equal(s, got))
}

// A time that is none makes JSON of the whole fleet impossible: the Edge that tells
// it is refused.
func TestATimeThatIsNoneIsRefused(t *testing.T) {
	for name, at := range map[string]*timestamppb.Timestamp{
		"too late": {Seconds: math.MaxInt64}, "too early": {Seconds: math.MinInt64}, "negative nanoseconds": {Nanos: -1},
	} {
		for place, s := range map[string]*controlv1.EdgeNodeSnapshot{
			"above": {At: at}, "below": {Nodes: []*controlv1.NodeSnapshot{{}, {LastSeen: at}}},
		} {
			_, err := read(t, raw(packed(t, s)))
			require.EqualError(t, err, "the Edge's answer has a time that is none, before the year 1 or after 9999", "%s, %s", name, place)
		}
	}
}

// Two bytes on the wire are a whole message in memory: 7 Mi of them would be 2 GB.
func TestAnAnswerOfTooManyPartsIsRefused(t *testing.T) {
	node := byte((&controlv1.EdgeNodeSnapshot{}).ProtoReflect().Descriptor().Fields().ByName("nodes").Number()<<3 | 2)
	nodes := bytes.Repeat([]byte{node, 0}, 250_001)
	_, err := read(t, raw(append(binary.AppendUvarint([]byte{0x0a}, uint64(len(nodes))), nodes...)))
	require.EqualError(t, err, "the Edge's answer has more than 250000 parts")
}

func TestWhatIsMalformedIsAnError(t *testing.T) {
	for _, text := range []string{"\x0a", "\x0a\xff", "\x0a\x02\x0a", "\xff\xff\xff", "\x0b\x0b\x0b"} {
		_, err := read(t, raw([]byte(text)))
		require.Error(t, err, "%q", text)
	}
}

// What answers may repeat what it was sent, and say it at length.
func TestAnErrorIsOneShortLineWithoutTheToken(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"message": func(w http.ResponseWriter, r *http.Request) {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnavailable,
				fmt.Errorf("saw\n\x1b[31m%s\u202e%s", r.Header.Get("Authorization"), strings.Repeat("é", 1<<20))))
		},
		"content type": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Authorization")+strings.Repeat("x", 1<<16))
		},
		"encoding": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			w.Header().Set("Content-Encoding", r.Header.Get("Authorization")+strings.Repeat("x", 1<<16))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, answer)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "MARK")
			require.Contains(t, err.Error(), "Bearer ***")
			require.LessOrEqual(t, len(err.Error()), 310)
			require.NotRegexp(t, `[\x00-\x1f\x7f\x{202e}\x{fffd}]`, err.Error())
		})
	}
}

// A token goes nowhere but to the configured address.
func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else was asked, with %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	_, err := read(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	require.ErrorContains(t, err, "307 Temporary Redirect")
}
