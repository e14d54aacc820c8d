package run

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// post sends a request to /v1/chat/completions and reads the answer.
func (r *rig) post(ctx context.Context, text string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"`+text+`"}]}`))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := r.http1.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), err
}

// A run and a request of /v1 share the provider's one slot, in order.
func TestS11_RunsAndTunnelShareTheSlots(t *testing.T) {
	b := newBackend(t, answerWhole)
	r := start(t, b.as("vllm"), options{queue: 64})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := run(t.Context(), r.api, ask("run")); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			status, body, err := r.post(t.Context(), "tunnel")
			if err != nil || status != http.StatusOK || !strings.Contains(body, "[DONE]") {
				t.Error(status, body, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, b.peaked())
	require.Len(t, b.asked, 32)
}

func TestFullQueueAndTimeoutAreTyped(t *testing.T) {
	open := make(chan struct{})
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request, body string) {
		select {
		case <-open:
		case <-r.Context().Done():
		}
		answerWhole(w, r, body)
	})
	var ended sync.WaitGroup
	defer ended.Wait()
	defer close(open)
	for name, c := range map[string]struct {
		options options
		reason  string
		code    connect.Code
	}{
		"full":    {options{queue: 0}, "QUEUE_FULL", connect.CodeResourceExhausted},
		"timeout": {options{queue: 1, timeoutMs: 50}, "QUEUE_TIMEOUT", connect.CodeUnavailable},
	} {
		r := start(t, b.as("vllm"), c.options)
		ended.Go(func() { _, _, _ = r.post(context.WithoutCancel(t.Context()), "holds the slot") })
		await(t, b.entered, "the tunnel's request")
		for _, client := range []inferencev1connect.InferenceServiceClient{r.api, r.client(r.http2, connect.WithGRPC()), r.client(r.http1, connect.WithGRPCWeb())} {
			events, err := run(t.Context(), client, ask("hi"))
			require.Empty(t, events, name)
			require.Equal(t, c.code, connect.CodeOf(err), name)
			f := failureOf(t, err)
			require.Equal(t, c.reason, reasonOf(f), name)
			require.False(t, f.GetMayHaveRun(), name)
			require.NotZero(t, f.GetRetryAfterSeconds(), name)
			var e *connect.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Meta().Get("Retry-After"), name)
		}
	}
}

func TestAKeysOwnLimitCountsRuns(t *testing.T) {
	open := make(chan struct{})
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request, body string) {
		<-open
		answerWhole(w, r, body)
	})
	r := start(t, b.as("vllm"), options{queue: 8})
	limited := r.clientWith(r.http1, limitedKey)
	var first sync.WaitGroup
	first.Go(func() { _, _ = run(t.Context(), limited, ask("hi")) })
	await(t, b.entered, "the first run")
	_, err := run(t.Context(), limited, ask("hi"))
	require.Equal(t, "KEY_LIMIT", reasonOf(failureOf(t, err)))
	close(open)
	first.Wait()
}

// A client that goes away ends the provider's connection, over every protocol,
// and its slot is free for the next.
func TestACancelEndsTheProvidersConnection(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if strings.Contains(body, "endless") {
			write(w, sse, `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
			<-r.Context().Done()
			return
		}
		answerWhole(w, r, body)
	})
	r := start(t, b.as("vllm"), options{queue: 8})
	for name, c := range map[string]inferencev1connect.InferenceServiceClient{
		"Connect over HTTP/1.1": r.client(r.http1), "Connect over HTTP/2": r.client(r.http2),
		"gRPC": r.client(r.http2, connect.WithGRPC()), "gRPC-Web": r.client(r.http1, connect.WithGRPCWeb()),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := c.Run(ctx, ask("endless"))
			require.NoError(t, err)
			require.True(t, stream.Receive(), "%v", stream.Err())
			require.True(t, stream.Receive())
			cancel()
			require.False(t, stream.Receive())
			_ = stream.Close()
			await(t, b.left, "the provider's connection to end")
			events, err := run(t.Context(), c, ask("next"))
			require.NoError(t, err)
			require.Equal(t, wholeEvents, events)
		})
	}
	require.Equal(t, 1, b.peaked())
}
