package openai

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
)

// Wherever the frames of a stream end, the client gets the same bytes.
func TestCase_A04_A06_AnyFramesGiveTheSameStream(t *testing.T) {
	stream := ": ping\nevent: x\ndata:{\"model\":\"served\",\ndata: \"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	var d doFunc
	over(t, doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error { return d(ctx, q, s) }), settings(), func(r *rig) {
		for _, eol := range []string{"\n", "\r\n", "\r"} {
			body := strings.ReplaceAll(stream, "\n", eol)
			for cut := range len(body) {
				frames := ended(events(body[:cut], body[cut:]))
				frames[0].More = cut%2 == 0
				d = answer(frames...)
				got := r.chat(streamed)
				require.NoError(r, got.err)
				require.Equal(r, asked(body), got.body)
			}
		}
	})
}

// A status that allows no body gets none, and no length; the connection goes on after it.
func TestStatusesWithoutABody(t *testing.T) {
	for _, status := range []int{204, 205} {
		for _, frames := range [][]dispatch.Frame{
			{whole(status, "application/json", "")},
			{whole(status, "application/json", "{}")}, // a provider that sends one all the same
			{{Head: head(status, "text/event-stream")}, {Body: []byte("data: x\n\n")}, {End: true}},
		} {
			over(t, answer(frames...), settings(), func(r *rig) {
				for range 2 {
					got := r.chat(hello)
					require.NoError(r, got.err)
					require.Equal(r, status, got.StatusCode)
					require.Empty(r, got.body)
				}
			})
		}
	}
}

// An encoded answer is the provider's bytes and fields, errors and streams too; it is not judged.
func TestEncodedAnswersPassVerbatim(t *testing.T) {
	gzip := dispatch.Header{Name: "Content-Encoding", Value: "gzip"}
	for _, c := range []struct {
		status int
		media  string
	}{{200, "application/json"}, {200, "text/event-stream"}, {400, "application/json"}, {503, "text/event-stream"}} {
		bytes := "\x1f\x8b\x08\x00\"model\":\"served\"\xff\x00"
		for _, frames := range [][]dispatch.Frame{
			{{Head: head(c.status, c.media, gzip), Body: []byte(bytes), End: true}},
			{{Head: head(c.status, c.media, gzip), Body: []byte(bytes[:7])}, {Body: []byte(bytes[7:])}, {End: true}},
		} {
			over(t, answer(frames...), settings(), func(r *rig) {
				got := r.chat(streamed)
				require.NoError(r, got.err)
				require.Equal(r, c.status, got.StatusCode)
				require.Equal(r, bytes, got.body)
				require.Equal(r, "gzip", got.Header.Get("Content-Encoding"))
			})
			over(t, answer(frames[:len(frames)-1]...).then(lost), settings(), func(r *rig) {
				if len(frames) == 1 {
					r.requireError(r.chat(streamed), 502, "provider_disconnected", "server_error")
					return
				}
				require.Error(r, r.chat(streamed).err, "nothing can be put into it: the connection is aborted")
			})
		}
	}
}

// The length is that of what is sent, whatever the name's length does to it; digests of the provider's bytes are dropped.
func TestCase_E17_LengthIsRecomputed(t *testing.T) {
	for _, served := range []string{"", "s", strings.Repeat("long-", 1000)} {
		body := `{"id":1,"model":"` + served + `","choices":[]}`
		h := head(200, "application/json", dispatch.Header{Name: "ETag", Value: `"x"`}, dispatch.Header{Name: "Digest", Value: "sha-256=x"}, dispatch.Header{Name: "Content-Length", Value: "3"})
		over(t, answer(dispatch.Frame{Head: h, Body: []byte(body), End: true}), settings(), func(r *rig) {
			got := r.chat(hello)
			require.NoError(r, got.err)
			require.Equal(r, `{"id":1,"model":"m","choices":[]}`, got.body)
			require.EqualValues(r, len(got.body), got.ContentLength)
			require.Empty(r, got.Header.Get("Etag"))
			require.Empty(r, got.Header.Get("Digest"))
			require.Empty(r, got.Trailer)
		})
	}
}

// HEAD on an endpoint that takes POST is refused without a body.
func TestCase_A22_HeadOfAnEndpoint(t *testing.T) {
	over(t, refuse(lost), settings(), func(r *rig) {
		got := r.do(r.request(http.MethodHead, "/v1/chat/completions", ""))
		require.Equal(r, 405, got.StatusCode)
		require.Empty(r, got.body)
	})
}
