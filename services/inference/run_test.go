package inference

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// dispatcher answers every request with frames, or an error.
type dispatcher struct {
	last   *dispatch.Request
	answer func(s dispatch.Sink) error
}

func (d *dispatcher) Do(_ context.Context, r *dispatch.Request, s dispatch.Sink) error {
	d.last = r
	return d.answer(s)
}

var grant = &dispatch.Grant{Node: "n", Provider: "p", Target: "served"}

func runHead() *dispatch.Head {
	return &dispatch.Head{Status: 200, Header: []dispatch.Header{{Name: "Content-Type", Value: eventsType}}}
}

// service is a Service whose every model is in group "g", and a client of it.
func service(t *testing.T, d *dispatcher, o ...connect.ClientOption) (*Service, inferencev1connect.InferenceServiceClient) {
	t.Helper()
	s := &Service{
		Calibration: estimate.NewCalibration(),
		Models:      func() []Model { return []Model{{ID: "m"}} },
		Target:      func(id string) (Target, bool) { return Target{Group: "g", ContextWindow: 100}, id == "m" },
		Settings:    func() Settings { return Settings{LongThreshold: 1000, BodyLimit: 1 << 20} },
		Simulated:   func(admission.ResourceKey) bool { return false },
		Keys:        auth.NewKeyring(auth.Credentials{Open: true}), Dispatcher: d, Log: slog.New(slog.DiscardHandler),
	}
	_, h := inferencev1connect.NewInferenceServiceHandler(s)
	return s, inferencev1connect.NewInferenceServiceClient(http.DefaultClient, serve(t, s.Guard(h)), o...)
}

// serve serves h until the test's end.
func serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return server.URL
}

func runOf(text string) *inferencev1.RunRequest {
	return &inferencev1.RunRequest{Model: "m", Messages: []*inferencev1.Message{{
		Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: text}}},
	}}}
}

// call makes a run and returns the names of its events.
func call(t *testing.T, c inferencev1connect.InferenceServiceClient, r *inferencev1.RunRequest) (events []string, last *inferencev1.RunResponse, err error) {
	t.Helper()
	stream, err := c.Run(t.Context(), r)
	require.NoError(t, err)
	defer stream.Close()
	for stream.Receive() {
		last = stream.Msg()
		name := last.ProtoReflect().WhichOneof(last.ProtoReflect().Descriptor().Oneofs().Get(0)).Name()
		events = append(events, string(name))
	}
	return events, last, stream.Err()
}

// encoded is events as a node sends them.
func encoded(t require.TestingT, events ...*inferencev1.RunResponse) string {
	var out strings.Builder
	for _, e := range events {
		_, err := protodelim.MarshalTo(&out, e)
		require.NoError(t, err)
	}
	return out.String()
}

func text(s string) *inferencev1.RunResponse {
	return &inferencev1.RunResponse{Event: &inferencev1.RunResponse_Delta{Delta: &inferencev1.Delta{Text: s}}}
}

func completed() *inferencev1.RunResponse {
	return &inferencev1.RunResponse{Event: &inferencev1.RunResponse_Completed{Completed: &inferencev1.Completed{}}}
}

func failed(status uint32) *inferencev1.RunResponse {
	return &inferencev1.RunResponse{Event: &inferencev1.RunResponse_Failed{Failed: &inferencev1.Failure{
		Reason: inferencev1.FailureReason_FAILURE_REASON_PROVIDER_ERROR, ProviderStatus: status,
	}}}
}

// later is an event of a later version.
func later() *inferencev1.RunResponse {
	e := &inferencev1.RunResponse{}
	e.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "new"))
	return e
}

func TestEventsAreReadInPiecesOfEverySize(t *testing.T) {
	body := encoded(t, text("a"), text(strings.Repeat("b", 300)), later(), completed(), text("late"))
	for size := 1; size <= len(body); size++ {
		var got []string
		r := &run{simulated: func(admission.ResourceKey) bool { return true }, send: func(e *inferencev1.RunResponse) error {
			got = append(got, e.GetDelta().GetText())
			return nil
		}}
		head := runHead()
		for from := 0; from < len(body); from += size {
			to := min(from+size, len(body))
			require.NoError(t, r.Frame(grant, &dispatch.Frame{Head: head, Body: []byte(body[from:to]), End: to == len(body)}))
			head = nil
		}
		require.Equal(t, []string{"", "a", strings.Repeat("b", 300), ""}, got, "started, texts, completed; in pieces of %d", size)
		require.True(t, r.Complete())
	}
}

func TestEndingsOfARun(t *testing.T) {
	lostLink := &dispatch.FailedError{Code: dispatch.ProviderDisconnected, HandedOff: true}
	for _, c := range []struct {
		name   string
		answer func(s dispatch.Sink) error
		events []string
		code   connect.Code // 0 = none
	}{
		{"complete", func(s dispatch.Sink) error {
			return s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, text("a"), completed())), End: true})
		}, []string{"started", "delta", "completed"}, 0},
		{"complete, and the link lost after", func(s dispatch.Sink) error {
			return errors.Join(s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, completed()))}), lostLink)
		}, []string{"started", "completed"}, 0},
		{"ended without a completion", func(s dispatch.Sink) error {
			return s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, text("a"))), End: true})
		}, []string{"started", "delta", "failed"}, connect.CodeAborted},
		{"ended within an event", func(s dispatch.Sink) error {
			return s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, completed(), text("a"))[:1]), End: true})
		}, []string{"started", "failed"}, connect.CodeAborted},
		{"lost after the head", func(s dispatch.Sink) error {
			return errors.Join(s.Frame(grant, &dispatch.Frame{Head: runHead()}), lostLink)
		}, []string{"started", "failed"}, connect.CodeAborted},
		{"lost before the head", func(dispatch.Sink) error { return lostLink }, nil, connect.CodeAborted},
		{"the provider's status", func(s dispatch.Sink) error {
			err := s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, failed(404))), End: true})
			require.NoError(t, err, "the record counts it as an answer, as on /v1")
			return err
		}, []string{"started", "failed"}, connect.CodeNotFound},
		{"the provider's error in its stream", func(s dispatch.Sink) error {
			err := s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, failed(0))), End: true})
			require.Error(t, err, "the record counts it as failed")
			return err
		}, []string{"started", "failed"}, connect.CodeUnknown},
		{"no run's answer", func(s dispatch.Sink) error {
			return s.Frame(grant, &dispatch.Frame{Head: &dispatch.Head{Status: 200}, Body: []byte("{}"), End: true})
		}, nil, connect.CodeAborted},
		{"an event too large", func(s dispatch.Sink) error {
			return s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: protowire.AppendVarint(nil, eventLimit+1)})
		}, []string{"started", "failed"}, connect.CodeAborted},
		{"no event", func(s dispatch.Sink) error {
			return s.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte{1, 0xff}})
		}, []string{"started", "failed"}, connect.CodeAborted},
		{"a bug", func(dispatch.Sink) error { return errors.New("secret detail") }, nil, connect.CodeInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, client := service(t, &dispatcher{answer: c.answer})
			events, last, err := call(t, client, runOf("hi"))
			require.Equal(t, c.events, events)
			if c.code == 0 {
				require.NoError(t, err)
				return
			}
			require.Equal(t, c.code, connect.CodeOf(err), "%v", err)
			require.NotContains(t, err.Error(), "secret")
			var e *connect.Error
			require.ErrorAs(t, err, &e)
			require.Len(t, e.Details(), 1)
			detail, detailErr := e.Details()[0].Value()
			require.NoError(t, detailErr)
			if len(c.events) > 0 {
				require.True(t, proto.Equal(detail, last.GetFailed()), "the event and the error say the same")
			}
		})
	}
}

func TestADrainingEdgeSaysSo(t *testing.T) {
	d := &dispatcher{}
	s, client := service(t, d)
	d.answer = func(dispatch.Sink) error {
		s.Drain() // takes the providers away from who waits
		return &broker.UnavailableError{Waited: true}
	}
	for range 2 { // while it waits, and before it is admitted
		_, _, err := call(t, client, runOf("hi"))
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		require.ErrorContains(t, err, "shutting down")
	}
}

// A run is of the class that the same conversation has on /v1.
func TestRunsAreClassedByTheirInput(t *testing.T) {
	d := &dispatcher{answer: func(dispatch.Sink) error { return broker.ErrUnknownGroup }}
	_, client := service(t, d)
	price := func(r *inferencev1.RunRequest) int {
		_, _, err := call(t, client, r)
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
		return d.last.Input.Tokens
	}
	words := strings.Repeat("some words ", 40)
	short := price(runOf(words))
	require.Equal(t, admission.Normal, d.last.Input.Class())
	chat := estimate.Of([]byte(`{"model":"m","messages":[{"role":"user","content":"` + words + `"}]}`)).Tokens()
	require.InDelta(t, chat, short, 20)
	require.GreaterOrEqual(t, short, chat, "the estimate errs upwards")

	require.Greater(t, price(runOf(strings.Repeat("some words ", 1000))), 1000)
	require.Equal(t, admission.Long, d.last.Input.Class())

	picture := runOf(words)
	picture.Messages[0].Parts = append(picture.Messages[0].Parts, &inferencev1.Part{Content: &inferencev1.Part_Image{Image: &inferencev1.Image{Data: make([]byte, 500_000), MediaType: "image/png"}}})
	require.InDelta(t, short+estimate.ImageTokens, price(picture), 40, "a picture costs what it costs on /v1, not its bytes")

	tools := runOf(words)
	tools.Tools = []*inferencev1.Tool{{Name: "f", Description: words, ParametersJson: `{"type":"object","description":"` + words + `"}`}}
	tools.Messages = append(tools.Messages, &inferencev1.Message{Role: inferencev1.Role_ROLE_ASSISTANT, ToolCalls: []*inferencev1.ToolCall{{Id: "c", Name: "f", ArgumentsJson: `{"a":"` + words + `"}`}}})
	require.Greater(t, price(tools), 3*short, "tools and their calls count")

	many := runOf(words)
	many.Sampling = &inferencev1.Sampling{MaxOutputTokens: new(uint32(1_000_000))}
	require.Equal(t, short, price(many), "what is to come out does not")
}

func TestWhatIsHandedOver(t *testing.T) {
	d := &dispatcher{answer: func(dispatch.Sink) error { return broker.ErrUnknownGroup }}
	_, client := service(t, d)
	_, _, err := call(t, client, runOf("hi"))
	require.Error(t, err)
	require.Equal(t, inferencev1connect.InferenceServiceRunProcedure, d.last.Path)
	require.Equal(t, admission.SurfaceChat, d.last.Surface)
	require.Equal(t, admission.GroupKey("g"), d.last.Group)
	require.Equal(t, 100, d.last.ContextWindow)
	require.Zero(t, d.last.ModelEnd)
	require.Equal(t, []dispatch.Header{{Name: "X-Request-Id", Value: d.last.ID}}, d.last.Header)
	got := &inferencev1.RunRequest{}
	require.NoError(t, proto.Unmarshal(d.last.Body, got))
	require.Equal(t, "hi", got.GetMessages()[0].GetParts()[0].GetText())
}
