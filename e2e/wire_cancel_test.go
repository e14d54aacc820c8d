//go:build !windows

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// cancel asks for a request's end as an administrator.
func (r *rig) cancel(req *adminv1.CancelRequestRequest) (*adminv1.CancelRequestResponse, error) {
	ctx, call := connect.NewClientContext(r.t.Context())
	call.RequestHeader().Set("Authorization", "Bearer "+wireAdminToken)
	return adminv1connect.NewAdminServiceClient(r.client, r.url).CancelRequest(ctx, req)
}

// audited waits for the Edge's log line about an administrator's call with these values.
func (r *rig) audited(want object) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		for line := range strings.SplitSeq(r.edge.log(), "\n") {
			var entry object
			if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "admin call" || entry["address"] == "" {
				continue
			}
			differs := false
			for k, v := range want {
				differs = differs || fmt.Sprint(entry[k]) != fmt.Sprint(v)
			}
			if !differs {
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond, "an audit line with %v", want)
}

// runOutcome is all that a typed run's client was told.
type runOutcome struct {
	events []*inferencev1.RunResponse
	err    error
}

// typedRun runs a conversation under a request id of the test's own and reads to the end. Each event is also told to heard.
func (r *rig) typedRun(id, text string, heard chan<- *inferencev1.RunResponse) (o runOutcome) {
	ctx, call := connect.NewClientContext(r.t.Context())
	call.RequestHeader().Set("Authorization", "Bearer "+apiKey)
	call.RequestHeader().Set("X-Request-Id", id)
	stream, err := inferencev1connect.NewInferenceServiceClient(r.client, r.url).Run(ctx, &inferencev1.RunRequest{
		Model: "m", Messages: []*inferencev1.Message{{
			Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: text}}},
		}},
	})
	if err != nil {
		return runOutcome{err: err}
	}
	defer stream.Close()
	for stream.Receive() {
		o.events = append(o.events, stream.Msg())
		heard <- stream.Msg()
	}
	o.err = stream.Err()
	return o
}

// soon takes what must come on a channel.
func soon[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "waited in vain for "+what)
	}
	return v
}

// requireCancelledRun checks the error of a run that an operator has cancelled, and returns its detail.
func requireCancelledRun(t *testing.T, err error) *inferencev1.Failure {
	t.Helper()
	var e *connect.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, connect.CodeAborted, e.Code(), "no code that gRPC clients repeat by themselves")
	require.Len(t, e.Details(), 1)
	detail, err := e.Details()[0].Value()
	require.NoError(t, err)
	f, ok := detail.(*inferencev1.Failure)
	require.True(t, ok, "%T", detail)
	require.Equal(t, inferencev1.FailureReason_FAILURE_REASON_PROVIDER_DISCONNECTED, f.GetReason())
	require.Equal(t, "the request was cancelled at the server", f.GetMessage())
	require.True(t, f.GetMayHaveRun())
	return f
}

// U11: an operator cancels what runs, before its first byte and after. Its client is told as the contracts say, the provider's connection
// ends and its one slot serves the next; the snapshot and the log name the cancel.
func TestU11_AnAdministratorsCancelEndsWhatRuns(t *testing.T) {
	const silent, begun, large, quick = "silent", "begun", "large", "quick"
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		text, target := string(body), asked(t, body)
		switch {
		case strings.Contains(text, silent):
		case strings.Contains(text, quick):
			complete(w, target, "hi")
			return
		case strings.Contains(text, `"stream":true`):
			_ = sse(w, chunk(target, "part"))
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"c1","object":"chat.completion","model":"x","choices":[`)
			if strings.Contains(text, large) { // more than a node holds back to send it whole
				_, _ = io.WriteString(w, strings.Repeat(" ", 2<<20))
			}
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	file := edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1, object{"type": "vllm"}))}, []object{model("m", "n/p=x")}, calm)
	file["edge"].(object)["admin_tokens"] = []object{{"name": "operator", "sha256": hash(wireAdminToken)}}
	r := start(t, file, "n")
	chat := func(stream bool, mark string) func(id string) any {
		return func(id string) any { return r.chat(id, chatBody("m", stream, fmt.Sprintf(`,"user":%q`, mark))) }
	}
	heard := make(chan *inferencev1.RunResponse, 16)
	typed := func(mark string) func(id string) any {
		return func(id string) any { return r.typedRun(id, mark, heard) }
	}
	refused := func(t *testing.T, told any) {
		a := told.(answer)
		require.Equal(t, "provider_disconnected", a.code(t))
		require.Equal(t, http.StatusBadGateway, a.status)
		require.Contains(t, a.body, `"The request was cancelled at the server."`)
		require.Equal(t, "false", a.header.Get("X-Should-Retry"))
	}

	for _, c := range []struct {
		name, state string
		ask         func(id string) any
		told        func(t *testing.T, told any)
	}{
		{"silent-stream", "prefill", chat(true, silent), refused},
		{"silent-answer", "prefill", chat(false, silent), refused},
		{"begun-stream", "streaming", chat(true, begun), func(t *testing.T, told any) {
			a := told.(answer)
			require.NoError(t, a.err, "closed in order after the error")
			require.Equal(t, http.StatusOK, a.status)
			requireSSE(t, a.body, 2)
			first, last, _ := strings.Cut(a.body, "\n\n")
			require.Contains(t, first, `"part"`)
			require.True(t, strings.HasPrefix(last, `data: {"error"`), last)
			require.Contains(t, last, `"provider_disconnected"`)
			require.Contains(t, last, `"The request was cancelled at the server."`)
		}},
		{"begun-answer", "prefill", chat(false, begun), refused}, // its client has got nothing yet
		{"large-answer", "streaming", chat(false, large), func(t *testing.T, told any) {
			a := told.(answer)
			require.Equal(t, http.StatusOK, a.status)
			require.Error(t, a.err, "a short body never passes for a whole one")
		}},
		{"silent-run", "prefill", typed(silent), func(t *testing.T, told any) {
			o := told.(runOutcome)
			require.Empty(t, o.events, "what ends before started is the error alone")
			requireCancelledRun(t, o.err)
		}},
		{"begun-run", "streaming", typed(begun), func(t *testing.T, told any) {
			o := told.(runOutcome)
			f := requireCancelledRun(t, o.err)
			require.Len(t, o.events, 3)
			require.Equal(t, "begun-run", o.events[0].GetStarted().GetRequestId())
			require.Equal(t, "part", o.events[1].GetDelta().GetText())
			require.Equal(t, f.String(), o.events[2].GetFailed().String(), "the event says what the error does")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, before, _ := s.counts()
			done := make(chan any, 1)
			go func() { done <- c.ask(c.name) }()
			s.reached(t, before+1)
			var live *controlv1.RequestSnapshot
			r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool {
				live = request(s, c.name)
				return live.GetState() == c.state && (c.state == "prefill" || live.GetAnswerBytes() > 0)
			}, "%s is %s", c.name, c.state)
			if c.name == "begun-run" { // its text comes after its start
				for soon(t, heard, "the run's text").GetDelta() == nil {
					continue
				}
			}

			req := &adminv1.CancelRequestRequest{Request: &adminv1.CancelRequestRequest_RequestId{RequestId: c.name}}
			if strings.HasSuffix(c.name, "run") {
				req.Request = &adminv1.CancelRequestRequest_EnqueueSeq{EnqueueSeq: live.GetEnqueueSeq()}
			}
			was, err := r.cancel(req)
			require.NoError(t, err)
			require.Equal(t, []any{c.name, c.state, live.GetEnqueueSeq()}, []any{was.GetRequestId(), was.GetState(), was.GetEnqueueSeq()})
			c.told(t, soon(t, done, "the end at the client"))

			soon(t, s.goneNews, "the end of the provider's connection")
			r.quiet()
			ending := r.snapshot().GetEndings()[0]
			require.Equal(t, []string{c.name, "cancelled", "cancelled by an administrator", "n", "p"},
				[]string{ending.GetRequestId(), ending.GetOutcome(), ending.GetDetail(), ending.GetNode(), ending.GetProvider()})
			r.audited(object{"token": "operator", "call": "cancel", "request_id": c.name, "enqueue_seq": live.GetEnqueueSeq(), "ok": true})

			// What has ended is not live; the log names it all the same.
			_, err = r.cancel(req)
			require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
			r.audited(object{"token": "operator", "call": "cancel", "request_id": req.GetRequestId(), "enqueue_seq": req.GetEnqueueSeq(), "ok": false})

			next := r.chat("after-"+c.name, chatBody("m", false, fmt.Sprintf(`,"user":%q`, quick)))
			require.NoError(t, next.err)
			require.Equal(t, http.StatusOK, next.status, next.body)
		})
	}
	r.quiet()
	_, peak, _, _ := s.counts()
	assert.Equal(t, 1, peak, "the slot came back no sooner than the provider had ended")
}
