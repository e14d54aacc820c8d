package control

import (
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// explain puts the decision record together: what admission decided, and what
// dispatch saw. False means that it is forgotten, or never was.
func (s *Service) explain(seq admission.Seq) (*controlv1.ExplainRequestResponse, bool) {
	st := s.State() // the first: what is live after it is in it, unless it has no room
	rec, recorded := s.Record(seq)
	live, ended := s.Explain(seq)
	if seq == 0 || !recorded && live == nil && ended == nil {
		return nil, false
	}
	out := &controlv1.ExplainRequestResponse{
		Scope: string(rec.Scope), MomentsForgotten: uint32(rec.Forgotten), LongContextThresholdTokens: uint32(st.LongThreshold),
	}
	if ended == nil {
		out.Request = shown(&st, seq)
	}
	if out.Request == nil {
		out.Request = past(&rec, live, ended)
	}
	if ended != nil {
		out.Ending = ending(ended)
		out.Attempts, out.LongContextThresholdTokens = uint32(ended.Attempts), uint32(ended.Threshold)
	} else if live != nil {
		out.Attempts = uint32(live.Attempts)
	}
	for _, m := range rec.Moments {
		moment := &controlv1.DecisionMoment{
			Kind: m.Kind.String(), At: timestamp(m.At), Reason: m.Reason.String(), Sentence: verdictSentence(m.Reason), Result: m.Result.String(),
			Candidates: verdicts(m.Verdicts), MoreCandidates: uint32(m.More),
		}
		if m.Kind == admission.AtGrant {
			moment.Node, moment.Provider = string(m.Resource.Node), string(m.Resource.Provider)
		}
		out.Moments = append(out.Moments, moment)
	}
	out.Candidates = verdicts(rec.Verdicts)
	return out, true
}

// past is a request that has ended, or that a snapshot has no room for.
func past(rec *admission.Record, live *dispatch.Live, ended *dispatch.Ending) *controlv1.RequestSnapshot {
	r := &controlv1.RequestSnapshot{
		EnqueueSeq: uint64(rec.Seq), Model: string(rec.Group), ContextClass: rec.Class.String(), EstimatedInputTokens: uint64(rec.InputTokens),
		EnqueuedAt: timestamp(rec.Enqueued), GrantedAt: timestamp(rec.Granted),
	}
	switch {
	case ended != nil:
		r.RequestId, r.Client, r.Endpoint, r.Attempts = ended.ID, ended.Client, ended.Path, uint32(ended.Attempts)
		r.EnqueueSeq, r.Model, r.ContextClass = uint64(ended.Seq), string(ended.Group), ended.Class.String()
		r.EstimatedInputTokens = uint64(ended.Estimated)
		r.Node, r.Provider, r.Target = string(ended.Grant.Node), string(ended.Grant.Provider), ended.Grant.Target
	case live != nil && rec.Waiting:
		name(r, live)
		r.State, r.Reason, r.Sentence = dispatch.Waiting.String(), rec.Reason.String(), verdictSentence(rec.Reason)
	case live != nil:
		name(r, live)
		progress(r, live)
		r.State = live.Phase.String()
		for _, m := range rec.Moments {
			if m.Kind == admission.AtGrant {
				r.Node, r.Provider = string(m.Resource.Node), string(m.Resource.Provider)
			}
		}
	}
	return r
}

func verdicts(all []admission.Verdict) []*controlv1.CandidateVerdict {
	out := make([]*controlv1.CandidateVerdict, 0, len(all))
	for _, v := range all {
		out = append(out, &controlv1.CandidateVerdict{
			Node: string(v.Resource.Node), Provider: string(v.Resource.Provider), Reason: v.Reason.String(), Sentence: verdictSentence(v.Reason),
			Capacity: uint32(v.Slots.Capacity), InFlight: uint32(v.Slots.InFlight),
			LongContextCapacity: uint32(v.Slots.LongCapacity), LongInFlight: uint32(v.Slots.LongInFlight),
		})
	}
	return out
}
