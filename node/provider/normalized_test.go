package provider

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/normalize"
)

// beginRun is the hand-off of a run with one message.
func beginRun(t *testing.T) (*runtimev1.RequestBegin, string) {
	t.Helper()
	body, err := proto.Marshal(&inferencev1.RunRequest{Model: "m", Messages: []*inferencev1.Message{{
		Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: "hi"}}},
	}}})
	require.NoError(t, err)
	b := begin(string(body))
	b.Path, b.Target, b.ContextWindowTokens = normalize.Path, "served", 4096
	return b, string(body)
}

// events are those of a whole answer.
func (a *answer) events() (all []*inferencev1.RunResponse) {
	a.t.Helper()
	for r := bytes.NewReader(a.body.Bytes()); r.Len() > 0; {
		e := &inferencev1.RunResponse{}
		require.NoError(a.t, protodelim.UnmarshalFrom(r, e))
		all = append(all, e)
	}
	return all
}

func TestARunIsAskedInTheProvidersTermsAndAnsweredInEvents(t *testing.T) {
	asked := make(chan string, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"message":{"content":"hey"}}`+"\n"+`{"done":true,"done_reason":"stop"}`+"\n")
	})
	s := NewSet(Config{Clock: clockwork.NewRealClock(), Log: quiet(), Credential: func(string) string { return "own" }})
	s.Apply(list(described("ollama", server.URL+"/root/v1/")))
	t.Cleanup(func() { closeSet(t, s) })
	b, body := beginRun(t)
	a, done := start(t, t.Context(), s, b, body)
	require.NoError(t, await(t, done, "the answer"))
	a.whole()
	require.Equal(t, `/root/api/chat Bearer own {"model":"served","messages":[{"role":"user","content":"hi"}],"stream":true,"options":{"num_ctx":4096}}`, await(t, asked, "the request"))
	require.Equal(t, normalize.ContentType, a.header("Content-Type"))
	all := a.events()
	require.Equal(t, "hey", all[0].GetDelta().GetText())
	require.NotNil(t, all[len(all)-1].GetCompleted())
}

func TestARunThatCannotBeTranslatedOpensNothing(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	s := newSet(t, clockwork.NewRealClock(), described("vllm", server.URL))
	b := begin("{}")
	b.Path = normalize.Path
	a, done := start(t, t.Context(), s, b, "{}")
	require.NoError(t, await(t, done, "the refusal"))
	require.Equal(t, neverOpened, a.code())
}

// The gate is one for runs and for the tunnel: whichever holds the slot, the
// other opens nothing.
func TestS05_RunsAndTunnelShareTheGate(t *testing.T) {
	for name, runFirst := range map[string]bool{"a run holds the slot": true, "the tunnel holds the slot": false} {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			asked, finish := make(chan struct{}, 2), make(chan struct{})
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				asked <- struct{}{}
				<-finish
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			})
			s := newSet(t, clock, described("vllm", server.URL))
			runBegin, runBody := beginRun(t)
			first, second := begin("{}"), runBegin
			firstBody, secondBody := "{}", runBody
			if runFirst {
				first, second, firstBody, secondBody = second, first, secondBody, firstBody
			}
			_, doneA := start(t, t.Context(), s, first, firstBody)
			await(t, asked, "the first request")

			b, doneB := start(t, t.Context(), s, second, secondBody)
			waitForWaiting(s, 1)
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(2 * time.Second)
			require.NoError(t, await(t, doneB, "the refusal"))
			require.Equal(t, busy, b.code())

			close(finish)
			require.NoError(t, await(t, doneA, "the first request's end"))
			require.Empty(t, asked, "a second upstream request was opened")
		})
	}
}

func TestACancelledRunLetsTheProviderGo(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(entered)
		<-r.Context().Done()
		close(left)
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", server.URL))
	ctx, cancel := context.WithCancel(t.Context())
	b, body := beginRun(t)
	a, done := start(t, ctx, s, b, body)
	await(t, entered, "the request")
	cancel()
	await(t, left, "the provider's connection to end")
	require.NoError(t, await(t, done, "the end"))
	require.Equal(t, cancelled, a.code())
}

// What is not the provider's API ends the run, and the provider's work for it.
func TestARunThatIsAnsweredInOtherTermsIsLost(t *testing.T) {
	left := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: oops\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", server.URL))
	b, body := beginRun(t)
	_, done := start(t, t.Context(), s, b, body)
	require.ErrorContains(t, await(t, done, "the end"), "not the JSON of its API")
	await(t, left, "the provider's connection to end")
}
