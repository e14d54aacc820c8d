package provider

import (
	"context"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

func simulated(config *runtimev1.Simulator) *runtimev1.Provider {
	p := described(simulatorType, "")
	p.Simulator = config
	return p
}

func TestSimulatorIsAProviderLikeAnyOther(t *testing.T) {
	s := newSet(t, clockwork.NewRealClock(), simulated(&runtimev1.Simulator{FailEvery: 3, FailMode: "disconnect"}))
	body := `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	whole := ask(t, s, body)
	assert.Contains(t, whole.whole(), `"system_fingerprint":"iop-simulator"`)
	assert.Equal(t, 1, whole.frames)

	stream := ask(t, s, strings.Replace(body, "{", `{"stream":true,`, 1))
	assert.Contains(t, stream.whole(), "data: [DONE]\n\n")
	assert.Equal(t, "text/event-stream", stream.header("Content-Type"))

	broken := ask(t, s, body)
	assert.Equal(t, disconnected, broken.code())
	ask(t, s, body).whole()
}

func TestCancelOfASimulatedAnswerEndsAtOnce(t *testing.T) {
	s := newSet(t, clockwork.NewFakeClock(), simulated(&runtimev1.Simulator{TokensPerSecond: 1}))
	ctx, cancel := context.WithCancel(t.Context())
	a := &answer{t: t, hook: func(*Frame) error { cancel(); return nil }}
	require.NoError(t, s.Run(ctx, begin(`{"stream":true}`), []byte(`{"stream":true}`), a))
	assert.Equal(t, cancelled, a.code(), "although no time passes: the simulator hangs up when its client does")
}

// TestChangedSimulatorIsAnotherInstance also shows that the old one's server ends:
// goleak would find it.
func TestChangedSimulatorIsAnotherInstance(t *testing.T) {
	s := newSet(t, clockwork.NewRealClock(), simulated(&runtimev1.Simulator{AnswerTokens: 3}))
	body := `{"messages":[{"role":"user","content":"hi"}]}`
	first := ask(t, s, body).whole()
	s.Apply(list(simulated(&runtimev1.Simulator{AnswerTokens: 4})))
	second := ask(t, s, body).whole()
	assert.NotEqual(t, first, second)
}
