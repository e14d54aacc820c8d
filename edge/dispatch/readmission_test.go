package dispatch

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
)

// watchingSink is a sink that learns of hand-offs.
type watchingSink struct {
	sink
	told []string
}

func (s *watchingSink) HandedOff(g *Grant) { s.told = append(s.told, "handed to "+string(g.Node)) }
func (s *watchingSink) Refused()           { s.told = append(s.told, "refused") }

// endings is every way in which a hand-off ends, and whether another candidate may be tried: only where no upstream request was opened.
var endings = []struct {
	name    string
	answers []any
	again   bool
}{
	{"the gate refuses", []any{Frame{Failure: &Failure{Code: ProviderBusy}}}, true},
	{"connection refused", []any{Frame{Failure: &Failure{Code: ProviderUnreachable}}}, true},
	{"the node opened nothing", []any{Frame{Failure: &Failure{Code: NeverOpened}}}, true},
	{"the node has not seen it", []any{error(ErrNeverSeen)}, true},
	{"the provider's connection is lost", []any{Frame{Failure: &Failure{Code: ProviderDisconnected}}}, false},
	{"no head in time", []any{Frame{Failure: &Failure{Code: ProviderTimeout}}}, false},
	{"cancelled at the node", []any{Frame{Failure: &Failure{Code: Cancelled}}}, false},
	{"the link is lost", []any{error(ErrLinkLost)}, false},
	{"lost in the answer", []any{Frame{Head: &Head{Status: 200}}, Frame{Failure: &Failure{Code: ProviderDisconnected}}}, false},
	{"said to be refused in the answer", []any{Frame{Head: &Head{Status: 200}}, Frame{Failure: &Failure{Code: ProviderBusy}}}, false},
	{"200", []any{whole}, false},
	{"400", []any{Frame{Head: &Head{Status: 400}, End: true}}, false},
	{"429", []any{Frame{Head: &Head{Status: 429}, End: true}}, false},
	{"500", []any{Frame{Head: &Head{Status: 500}, End: true}}, false},
	{"502", []any{Frame{Head: &Head{Status: 502}, End: true}}, false},
	{"503", []any{Frame{Head: &Head{Status: 503}, Body: []byte("busy"), End: true}}, false},
}

// C21: another candidate is tried only after what opened no upstream request, and a provider's own answer is the client's, a 503 included.
func TestCase_C21_OnlyWhatOpenedNothingIsTriedAgain(t *testing.T) {
	for _, c := range endings {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.connect("n")
			r.connect("m")
			var s watchingSink
			done := r.do(t.Context(), request(), &s)
			first := <-r.taken
			for _, a := range c.answers {
				first.answers <- a
			}
			told := []string{"handed to " + string(first.node)}
			if c.again {
				second := <-r.taken
				require.NotEqual(t, first.node, second.node)
				second.answers <- whole
				require.NoError(t, <-done)
				told = append(told, "refused", "handed to "+string(second.node))
			} else {
				<-done
			}
			require.Empty(t, r.taken)
			require.Equal(t, told, s.told)
			if f, isFrame := c.answers[0].(Frame); isFrame && f.Head != nil {
				require.Equal(t, f.Head.Status, s.status)
				require.Equal(t, string(f.Body), s.body)
			}
			r.idle()
		})
	}
}

// Each candidate is tried at most once, and the record tells every attempt.
func TestEachCandidateIsTriedOnce(t *testing.T) {
	for _, c := range endings[:4] {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.connect("n")
			r.connect("m")
			var s watchingSink
			done := r.do(t.Context(), request(), &s)
			first := <-r.taken
			first.answers <- c.answers[0]
			second := <-r.taken
			second.answers <- c.answers[0]
			var failed *FailedError
			require.ErrorAs(t, <-done, &failed)
			require.True(t, failed.Code.neverOpened())
			require.False(t, failed.HandedOff)
			require.NotEqual(t, first.node, second.node)
			require.Empty(t, r.taken)
			require.Contains(t, r.logs.String(), "attempts=2")
			r.idle()

			// It is of this request alone: the next one begins with both.
			done = r.do(t.Context(), request(), &s)
			require.Equal(t, first.node, (*relayTo(r, whole)).node)
			require.NoError(t, <-done)
		})
	}
}

// relayTo answers the next hand-off with a.
func relayTo(r *rig, a ...any) *fakeStream {
	s := <-r.taken
	for _, a := range a {
		s.answers <- a
	}
	return s
}

// IOP keeps no runtime health: whatever clients do and providers answer, the provider is the first choice of the next request, as before.
func TestCase_B07_B12_E23_NothingMakesAProviderAvoided(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	r.connect("m")
	done := r.do(t.Context(), request(), &sink{})
	chosen := relayTo(r, whole).node
	require.NoError(t, <-done)
	for range 3 {
		for _, c := range endings {
			done := r.do(t.Context(), request(), &sink{})
			s := relayTo(r, c.answers...)
			require.Equal(t, chosen, s.node, "the request after which %q came", c.name)
			if c.again {
				require.NotEqual(t, chosen, relayTo(r, whole).node)
			}
			<-done
		}
		for _, after := range [][]any{nil, {Frame{Head: &Head{Status: 200}, Body: []byte("a")}}} { // clients that leave before and in the answer
			ctx, leave := context.WithCancel(t.Context())
			watched := sink{got: make(chan struct{}, 1)}
			done := r.do(ctx, request(), &watched)
			s := relayTo(r, after...)
			require.Equal(t, chosen, s.node)
			if after != nil {
				<-watched.got
			}
			leave()
			<-s.cancels
			s.answers <- Frame{Failure: &Failure{Code: Cancelled}}
			require.ErrorIs(t, <-done, context.Canceled)
		}
		r.idle()
	}
}

// The decision record has each attempt: whom it was granted to, that it came back, and among whom it was decided then.
func TestARefusalIsRecorded(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	r.connect("m")
	done := r.do(t.Context(), request(), &sink{})
	first := relayTo(r, Frame{Failure: &Failure{Code: ProviderBusy}})
	second := <-r.taken
	var moments []string
	for _, m := range onlyRecord(t, r.broker).Moments {
		text := m.Kind.String() + " " + string(m.Resource.Node) + " among"
		for _, v := range m.Verdicts {
			text += " " + string(v.Resource.Node)
			if v.Reason == admission.ReasonRefused {
				text += "=refused"
			}
		}
		moments = append(moments, text)
	}
	require.Equal(t, []string{
		"grant " + string(first.node) + " among n m",
		"requeue  among " + string(second.node) + " " + string(first.node) + "=refused",
		"grant " + string(second.node) + " among " + string(second.node) + " " + string(first.node) + "=refused",
	}, moments)
	second.answers <- whole
	require.NoError(t, <-done)
}

func onlyRecord(t *testing.T, b *broker.Broker) admission.Record {
	leases := b.Snapshot().Leases
	require.Len(t, leases, 1)
	rec, ok := b.Record(leases[0].Seq)
	require.True(t, ok)
	return rec
}
