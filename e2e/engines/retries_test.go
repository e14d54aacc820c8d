//go:build engines

package engines

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
)

func init() {
	for name, check := range map[string]func(*testing.T, scene){
		"retry 429": retriesAfterQueueFull,
		"retry 503": retriesAfterQueueTimeout,
		"no retry 502": func(t *testing.T, s scene) {
			notRetried(t, s, modelDropped, http.StatusBadGateway, "provider_disconnected")
		},
		"no retry 504": func(t *testing.T, s scene) {
			notRetried(t, s, modelSilent, http.StatusGatewayTimeout, "provider_timeout")
		},
		"retries all the same 502": retriedAllTheSame,
	} {
		scenarios[name] = check
	}
}

// occupy takes the one slot of the server until the returned function is called.
func (s served) occupy(t *testing.T) (release func()) {
	t.Helper()
	held, end := context.WithCancel(ctx)
	prompt := fmt.Sprintf("%s holds the slot, go %d", t.Name(), s.endless)
	done := make(chan struct{})
	before := len(exchanges(prompt))
	go func() {
		defer close(done)
		_, _ = openaiGo{}.ask(held, running.viaIOP(), call{Model: s.model, Prompt: prompt, Stream: true})
	}()
	release = func() { end(); <-done }
	t.Cleanup(release)
	require.Eventually(t, func() bool {
		at := exchanges(prompt)
		return len(at) == before+1 && at[before].Status == http.StatusOK
	}, soon, tick, "the holder is being answered")
	return release
}

// requireRetried checks that the library tried again by itself after one
// refusal, no sooner than it was told, and that the engine heard of it once.
func requireRetried(t *testing.T, got seen, prompt string, status int) {
	t.Helper()
	require.Nil(t, got.Error, "%+v", got.Error)
	require.Equal(t, []int{status, http.StatusOK}, got.statuses())
	assert.Equal(t, countmodel.Answer(97, 1000), got.Text)
	assert.GreaterOrEqual(t, got.Attempts[0].RetryAfter, 1)
	assert.GreaterOrEqual(t, got.Attempts[1].Pause, 1000*got.Attempts[0].RetryAfter, "Retry-After is heeded")
	assert.Len(t, exchanges(prompt), 1)
}

func retriesAfterQueueFull(t *testing.T, s scene) {
	release := s.occupy(t)
	granted := snapshot(t).GetCounters().GetGranted()
	waiter := make(chan error, 1)
	go func() {
		_, err := openaiGo{}.ask(ctx, running.viaIOP(), call{Model: s.narrow, Prompt: t.Name() + " waits, go 98"})
		waiter <- err
	}()
	require.Eventually(t, func() bool { return snapshot(t).GetQueueTotal() == 1 }, soon, tick)

	prompt := marked(t, 97)
	got := s.playAt(t, running.viaIOP(), "chat", ask{Model: s.narrow, Prompt: prompt, Retries: 2}, func(status int) {
		if status == http.StatusTooManyRequests {
			release()
		}
	})
	requireRetried(t, got, prompt, http.StatusTooManyRequests)
	require.NoError(t, <-waiter)
	assert.Equal(t, granted+2, snapshot(t).GetCounters().GetGranted(), "the waiter, and the second attempt")
}

func retriesAfterQueueTimeout(t *testing.T, s scene) {
	release := s.occupy(t)
	granted := snapshot(t).GetCounters().GetGranted()
	prompt := marked(t, 97)
	got := s.playAt(t, running.viaIOP(), "chat", ask{Model: s.brief, Prompt: prompt, Retries: 2}, func(status int) {
		if status == http.StatusServiceUnavailable {
			release()
		}
	})
	requireRetried(t, got, prompt, http.StatusServiceUnavailable)
	assert.Equal(t, granted+1, snapshot(t).GetCounters().GetGranted(), "the second attempt")
}

// notRetried: to repeat what a provider may already have begun does harm, IOP
// says x-should-retry: false, and the library heeds it.
func notRetried(t *testing.T, s scene, model string, status int, code string) {
	prompt := marked(t, 97)
	before := running.faulty.asked.Load()
	got := s.play(t, "chat", ask{Model: model, Prompt: prompt, Retries: 2})
	require.NotNil(t, got.Error)
	assert.Equal(t, []int{status}, got.statuses())
	assert.Equal(t, status, got.Error.Status)
	if got.Error.Code != "" {
		assert.Equal(t, code, got.Error.Code)
	}
	assert.EqualValues(t, 1, running.faulty.asked.Load()-before, "requests at the provider")
}

// retriedAllTheSame records a weakness of a library: it does not know
// x-should-retry and repeats any 5xx, each time as a new request of its own.
func retriedAllTheSame(t *testing.T, s scene) {
	before := running.faulty.asked.Load()
	got := s.play(t, "chat", ask{Model: modelDropped, Prompt: marked(t, 97), Retries: 1})
	require.NotNil(t, got.Error)
	assert.Equal(t, []int{http.StatusBadGateway, http.StatusBadGateway}, got.statuses())
	assert.EqualValues(t, 2, running.faulty.asked.Load()-before, "requests at the provider: one for each attempt")
}
