//go:build engines

package engines

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// beginRun asks for a normalized run of a prompt.
func beginRun(t *testing.T, ctx context.Context, prompt string, change func(*inferencev1.RunRequest)) *connect.ServerStreamForClient[inferencev1.RunResponse] {
	t.Helper()
	// The tokens that the engine is loaded with, so that it is not loaded anew.
	window := uint32(contextTokens)
	req := &inferencev1.RunRequest{Model: modelBig, NumCtx: &window, Messages: []*inferencev1.Message{{
		Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: prompt}}},
	}}}
	change(req)
	call, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+running.key)
	stream, err := inferencev1connect.NewInferenceServiceClient(http.DefaultClient, "http://"+running.edgeAddr).Run(call, req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	return stream
}

func TestRunOnOllamasOwnAPI(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  uint32 // of the answer; 0 = none
		finish inferencev1.FinishReason
		text   string
	}{
		{"to its end", 0, inferencev1.FinishReason_FINISH_REASON_STOP, " 98 99 100"},
		{"cut short", 2, inferencev1.FinishReason_FINISH_REASON_LENGTH, " 98 99"},
	} {
		t.Run(c.name, func(t *testing.T) {
			prompt := marked(t, 97)
			stream := beginRun(t, ctx, prompt, func(r *inferencev1.RunRequest) {
				if c.limit > 0 {
					r.Sampling = &inferencev1.Sampling{MaxOutputTokens: &c.limit}
				}
			})
			var text strings.Builder
			var started *inferencev1.Started
			var usage *inferencev1.Usage
			var completed *inferencev1.Completed
			for stream.Receive() {
				switch e := stream.Msg().GetEvent().(type) {
				case *inferencev1.RunResponse_Started:
					started = e.Started
				case *inferencev1.RunResponse_Delta:
					text.WriteString(e.Delta.GetText())
				case *inferencev1.RunResponse_Usage:
					usage = e.Usage
				case *inferencev1.RunResponse_Completed:
					completed = e.Completed
				}
			}
			require.NoError(t, stream.Err())
			assert.Equal(t, c.text, text.String())
			assert.Equal(t, "ollama", started.GetProviderId())
			assert.False(t, started.GetSimulated())
			assert.Positive(t, usage.GetInputTokens())
			assert.Positive(t, usage.GetOutputTokens())
			assert.Equal(t, c.finish, completed.GetFinishReason())

			seen := exchanges(prompt)
			require.Len(t, seen, 1)
			assert.Equal(t, "/api/chat", seen[0].Path)
			assert.Contains(t, string(seen[0].Request), `"num_ctx":8192`)
			requireIdle(t)
		})
	}
}

func TestRunThatFailsAtOllama(t *testing.T) {
	prompt := marked(t, 97)
	stream := beginRun(t, ctx, prompt, func(r *inferencev1.RunRequest) {
		r.Tools = []*inferencev1.Tool{{Name: "now"}} // the model's template has none
	})
	var failed *inferencev1.Failure
	for stream.Receive() {
		failed = stream.Msg().GetFailed()
	}
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(stream.Err()), "%v", stream.Err())
	assert.EqualValues(t, http.StatusBadRequest, failed.GetProviderStatus())
	assert.Contains(t, failed.GetProviderBody(), "does not support tools")
}

func TestRunThatIsCancelled(t *testing.T) {
	const deltas = 3
	prompt := marked(t, endless)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := beginRun(t, runCtx, prompt, func(*inferencev1.RunRequest) {})
	var text strings.Builder
	require.True(t, stream.Receive(), "%v", stream.Err())
	for range deltas {
		require.True(t, stream.Receive(), "%v", stream.Err())
		text.WriteString(stream.Msg().GetDelta().GetText())
	}
	cancel()
	require.False(t, stream.Receive())
	assert.Equal(t, countmodel.Answer(endless, deltas), text.String())
	requireBrokenOff(t, openaiGo{}, prompt)
}
