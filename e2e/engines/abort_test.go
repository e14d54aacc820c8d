//go:build engines

package engines

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
	"github.com/iop-dev/iop/e2e/engines/tap"
)

const (
	// tick paces the polling of real processes.
	tick = 5 * time.Millisecond
	// grace is the configuration's default of cancel_grace_ms: what the node waits
	// at most for the engine to close a request that was broken off.
	grace = 2 * time.Second
	// endless is a start whose answer never stops by itself.
	endless = 901
)

// requireBrokenOff checks that the one call with this prompt was ended at the
// engine because its client went away, that the engine itself counts nothing
// running any more, and that the slot is free for the next call.
func requireBrokenOff(t *testing.T, lib library, prompt string) {
	t.Helper()
	require.True(t, countmodel.Endless(endless))
	require.Eventually(t, func() bool {
		seen := exchanges(prompt)
		return len(seen) == 1 && !seen[0].Running()
	}, soon, tick, "the engine's connection must end")
	e := exchanges(prompt)[0]
	require.False(t, e.ClientClosed.IsZero(), "the node must end the connection, not wait for the answer")
	t.Logf("from the node's close to the engine's end: %v", e.End.Sub(e.ClientClosed))
	assert.Less(t, e.End.Sub(e.ClientClosed), grace)
	requireIdle(t)

	next := marked(t, 97)
	a, err := lib.ask(ctx, running.viaIOP(), call{Model: modelFast, Prompt: next})
	require.NoError(t, err)
	requireCounted(t, 97, modelFast, a)
	assert.Equal(t, 1, tap.Peak(append(exchanges(next), e)), "the next call must not overlap the one broken off")
}

// requireAtWork waits until the engine answers the call with this prompt. To
// break it off before that would test Ollama rather than IOP: in 0.6.5 a request
// that is given up before Ollama has scheduled it is never closed.
func requireAtWork(t *testing.T, prompt string) {
	t.Helper()
	require.Eventually(t, func() bool { return running.engine.atWork(prompt) }, soon, tick, "the call reaches the engine")
	require.Len(t, exchanges(prompt), 1)
}

func TestAbortWhileStreaming(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library) {
		const chunks = 3
		prompt := marked(t, endless)
		a, err := lib.ask(ctx, running.viaIOP(), call{Model: modelBig, Prompt: prompt, Stream: true, AbortAfter: chunks})
		require.NoError(t, err)
		assert.True(t, a.Aborted)
		assert.Equal(t, countmodel.Answer(endless, chunks), a.Text)
		requireBrokenOff(t, lib, prompt)
	})
}

func TestAbortBeforeTheAnswer(t *testing.T) {
	lib := openaiGo{}
	prompt := marked(t, endless)
	call := call{Model: modelBig, Prompt: prompt}
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	failed := make(chan error, 1)
	go func() {
		_, err := lib.ask(ctx, running.viaIOP(), call)
		failed <- err
	}()
	requireAtWork(t, prompt)
	assert.Zero(t, exchanges(prompt)[0].Status, "an answer that is no stream comes whole")
	hangUp()
	require.ErrorIs(t, <-failed, context.Canceled)
	requireBrokenOff(t, lib, prompt)
}

// A call that waits for the slot and is given up never reaches the engine.
func TestAbortWhileQueued(t *testing.T) {
	lib := openaiGo{}
	holderCtx, endHolder := context.WithCancel(ctx)
	defer endHolder()
	holder := marked(t, endless)
	held := make(chan error, 1)
	go func() {
		_, err := lib.ask(holderCtx, running.viaIOP(), call{Model: modelBig, Prompt: holder})
		held <- err
	}()
	requireAtWork(t, holder)

	waiter := marked(t, 801)
	waiterCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	waited := make(chan error, 1)
	go func() {
		_, err := lib.ask(waiterCtx, running.viaIOP(), call{Model: modelFast, Prompt: waiter})
		waited <- err
	}()
	require.Eventually(t, func() bool { return snapshot(t).GetQueueTotal() == 1 }, soon, tick, "the second call waits")
	giveUp()
	require.ErrorIs(t, <-waited, context.Canceled)
	require.Eventually(t, func() bool { return snapshot(t).GetQueueTotal() == 0 }, soon, tick, "its place is given up")
	require.Equal(t, uint32(1), snapshot(t).GetInFlightTotal(), "the holder goes on")

	endHolder()
	require.ErrorIs(t, <-held, context.Canceled)
	requireBrokenOff(t, lib, holder)
	assert.Empty(t, exchanges(waiter))
}
