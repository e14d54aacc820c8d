package inference

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/intake"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

func TestADeadlineMovesWithTheBytesAndNotWithEach(t *testing.T) {
	var set []time.Time
	d := deadline{limit: time.Hour, set: func(at time.Time) error {
		set = append(set, at)
		return nil
	}}
	d.clear()
	require.Empty(t, set, "nothing to clear")
	d.arm()
	d.arm()
	require.Len(t, set, 1)
	d.at = d.at.Add(-30 * time.Minute) // half an hour later
	d.arm()
	require.Len(t, set, 2)
	d.clear()
	require.True(t, set[2].IsZero())

	set = nil
	body := &bodyReader{ReadCloser: io.NopCloser(strings.NewReader("all")), deadline: deadline{limit: time.Hour, set: d.set}}
	_, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Len(t, set, 2, "one while it comes, and none after its end")
	require.True(t, set[1].IsZero())

	none := deadline{set: func(time.Time) error { t.Error("set"); return nil }}
	none.arm()
	none.clear()
}

// A client that does not read gives up its run when the limit is over, not before
// and not never.
func TestAClientThatDoesNotReadIsLetGo(t *testing.T) {
	ended := make(chan error, 1)
	piece := []byte(encoded(t, text(strings.Repeat("x", 128<<10))))
	d := &dispatcher{answer: func(s dispatch.Sink) error {
		head := runHead()
		for {
			if err := s.Frame(grant, &dispatch.Frame{Head: head, Body: piece}); err != nil {
				ended <- err
				return err
			}
			head = nil
		}
	}}
	s, client := service(t, d, connect.WithAcceptCompression("gzip", nil, nil))
	s.Settings = func() Settings { return Settings{LongThreshold: 1000, IdleTimeout: 50 * time.Millisecond} }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.Run(ctx, runOf("hi"))
	require.NoError(t, err)
	defer stream.Close()
	require.Error(t, <-ended)
}

// post sends a body as application/connect+json and returns the reply.
func post(t *testing.T, url string, body io.Reader) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+inferencev1connect.InferenceServiceRunProcedure, body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(all)
}

// last is the last piece of a body, which may come with the body's end.
type last struct {
	size int
	end  error
}

func (l last) Read([]byte) (int, error) { return l.size, l.end }

func TestBytesThatComeWithTheEndCount(t *testing.T) {
	budget := new(intake.Budget)
	budget.Limit(200 << 10)
	for _, end := range []error{nil, io.EOF} {
		body := &bodyReader{ReadCloser: io.NopCloser(last{150 << 10, end}), room: budget.Share()}
		_, err := body.Read(nil)
		require.ErrorContains(t, err, "as many large requests as it can hold", "%v", end)
		require.Zero(t, budget.Held())
	}
}

func TestARequestEndsWithItsMessage(t *testing.T) {
	d := &dispatcher{answer: func(dispatch.Sink) error { return broker.ErrUnknownGroup }}
	s, _ := service(t, d)
	_, h := inferencev1connect.NewInferenceServiceHandler(s, connect.WithReadMaxBytes(1<<30))
	url := serve(t, s.Guard(h))
	message := func(json string) string {
		var out bytes.Buffer
		out.WriteByte(0)
		_ = binary.Write(&out, binary.BigEndian, uint32(len(json)))
		return out.String() + json
	}
	one := message(`{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"text":"hi"}]}]}`)
	require.Contains(t, post(t, url, strings.NewReader(one)), "not_found", "it has been dispatched")
	require.Contains(t, post(t, url, io.MultiReader(strings.NewReader(one))), "not_found", "chunked")
	d.last = nil
	for _, more := range []string{"more", one} {
		require.Contains(t, post(t, url, strings.NewReader(one+more)), `"error"`)
	}
	require.Contains(t, post(t, url, strings.NewReader(message(`{"model":"`+strings.Repeat("m", 1<<20)+`"}`))), "resource_exhausted")
	require.Nil(t, d.last, "none of them has been dispatched")

	s.Intake = new(intake.Budget)
	s.Intake.Limit(200 << 10)
	long := message(`{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"text":"` + strings.Repeat("hi ", 50<<10) + `"}]}]}`)
	require.Contains(t, post(t, url, strings.NewReader(long)), "as many large requests as it can hold", "of all requests on their way")
	require.Nil(t, d.last)
	require.Zero(t, s.Intake.Held())
	require.Contains(t, post(t, url, strings.NewReader(one)), "not_found", "a small one passes")
}
