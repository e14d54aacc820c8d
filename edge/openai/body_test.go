package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

const mib = 1 << 20

// bigBody is a chat request of about that size.
func bigBody(tb testing.TB, size int, text string) []byte {
	content, err := json.Marshal(text)
	require.NoError(tb, err)
	content = bytes.Repeat(content[1:len(content)-1], size/len(content))
	return slices.Concat([]byte(`{"model":"m","messages":[{"role":"user","content":"`), content, []byte(`"}]}`))
}

// TestABodyTakesLittleMoreThanItsSize: a body takes its own size, and a quarter of it for a moment while it grows; what is left behind does not add up.
func TestABodyTakesLittleMoreThanItsSize(t *testing.T) {
	body := bigBody(t, 12*mib, "Explain how the gate keeps two long prompts apart.\n")
	s := settings()
	s.BodyLimit = 64 * mib
	h := New(doFunc(func(context.Context, *dispatch.Request, dispatch.Sink) error { return nil }), estimate.NewCalibration(), nil, s)
	req, err := http.NewRequest(http.MethodPost, "/v1/chat/completions", io.NopCloser(bytes.NewReader(body)))
	require.NoError(t, err)
	req.ContentLength = int64(len(body))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h.ServeHTTP(newRecorder(), req)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(body))+growth*mib+2*mib, "bytes allocated from the first to the class")
}

// A client that announces much and sends little is not believed.
func TestAnAnnouncedLengthIsNotBelieved(t *testing.T) {
	for sent, most := range map[int64]int64{0: firstBuffer, firstBuffer: growth * firstBuffer, 5000: growth * 5000} {
		require.LessOrEqual(t, int64(cap(grow(make([]byte, max(sent, 512)), 30*mib, 32*mib))), max(most, 1<<13)+1<<13, "%d bytes sent", sent)
	}
	require.EqualValues(t, 32*mib, cap(grow(make([]byte, 8*mib), 32*mib-1, 64*mib)), "room for the rest, and for no more")
	require.Less(t, cap(grow(make([]byte, 8*mib), -1, 10*mib)), 10*mib+1<<14, "never much over the limit")
}

// BenchmarkBody32MiB is the way of a body from the socket to its class. Run it alone on a quiet machine.
func BenchmarkBody32MiB(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"prose", "Explain how the gate keeps two long prompts apart. "},
		{"hangul", "두 개의 긴 프롬프트를 서로 떼어 놓는 방법을 설명하라. "},
		{"code", "\tif x := f(\"a\"); x != nil {\n\t\treturn x\n\t}\n"},
		{"json in a string", `{"id":7919,"k":"v1","ok":true},`},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := bigBody(b, 32*mib, c.text)
			s := settings()
			s.BodyLimit = 128 * mib
			classed := make(chan struct{}, 1)
			h := New(doFunc(func(context.Context, *dispatch.Request, dispatch.Sink) error {
				classed <- struct{}{}
				return nil
			}), estimate.NewCalibration(), nil, s)
			server := httptest.NewServer(h)
			defer server.Close()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				res, err := http.Post(server.URL+"/v1/chat/completions", "application/json", bytes.NewReader(body))
				require.NoError(b, err)
				res.Body.Close()
				<-classed
			}
		})
	}
}
