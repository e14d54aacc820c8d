package admin

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/state"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

// Caller is who calls, for the log and for what is kept.
type Caller struct {
	Token   string // name of the admin token
	Address string // host:port of the peer
}

type callerKey struct{}

// WithCaller notes in a call's context who calls.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Reload is what a refresh did.
type Reload struct {
	Revision     uint64
	Changes      []string
	NeedsRestart []string
	Warnings     []string
}

// Order is what an operator wants of a provider, or of a node where Provider is
// empty.
type Order struct {
	Node     admission.NodeID
	Provider admission.ProviderID
	Mode     state.Mode // empty = back to what the file says
}

// Outcome is what is in force after an order.
type Outcome struct {
	Override *state.Override // nil = none
	InFlight int
	// Lost is why this does not outlast a restart of the Edge; nil if it does.
	Lost error
}

// Check is what a refresh would do.
type Check struct {
	Errors       []string // why it would be refused; empty if it would not
	Warnings     []string
	Changes      []string
	NeedsRestart []string
}

// Target names a live request: by its number, or by its x-request-id where that
// is 0.
type Target struct {
	Seq admission.Seq
	ID  string
}

// Cancelled is what a request was that was cancelled.
type Cancelled struct {
	Seq   admission.Seq
	ID    string
	State string
}

// Service implements adminv1connect.AdminServiceHandler.
type Service struct {
	// Reload re-reads the configuration, all or nothing.
	Reload func(Caller) (Reload, error)
	// Check says what Reload would do.
	Check func(Caller) (Check, error)
	// Cancel ends a live request.
	Cancel func(Caller, Target) (Cancelled, error)
	// Override carries an order out, in one step.
	Override func(Caller, Order) (Outcome, error)
	// Forget gives up what the input estimate has learned of a served target ("" = of all), and
	// returns how many kinds of text that was.
	Forget func(by Caller, target string) int
	// Credentials makes and takes away secrets.
	Credentials Credentials
}

// ReloadConfig re-reads the configuration file.
func (s *Service) ReloadConfig(ctx context.Context, _ *adminv1.ReloadConfigRequest) (*adminv1.ReloadConfigResponse, error) {
	r, err := s.Reload(callerOf(ctx))
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.ReloadConfigResponse{
		ConfigRevision: r.Revision, Changes: r.Changes, NeedsRestart: r.NeedsRestart, Warnings: findings(r.Warnings),
	}, nil
}

// CheckConfig says what a refresh would do.
func (s *Service) CheckConfig(ctx context.Context, _ *adminv1.CheckConfigRequest) (*adminv1.CheckConfigResponse, error) {
	c, err := s.Check(callerOf(ctx))
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.CheckConfigResponse{
		Valid: len(c.Errors) == 0, Errors: findings(c.Errors), Warnings: findings(c.Warnings), Changes: c.Changes, NeedsRestart: c.NeedsRestart,
	}, nil
}

// findings are lines that begin with a file's name, which need not be UTF-8.
func findings(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = strings.ToValidUTF8(line, "?")
	}
	return out
}

// CancelRequest ends a request that waits or runs.
func (s *Service) CancelRequest(ctx context.Context, req *adminv1.CancelRequestRequest) (*adminv1.CancelRequestResponse, error) {
	was, err := s.Cancel(callerOf(ctx), Target{Seq: admission.Seq(req.GetEnqueueSeq()), ID: req.GetRequestId()})
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.CancelRequestResponse{EnqueueSeq: uint64(was.Seq), RequestId: was.ID, State: was.State}, nil
}

// modes are what the actions of the wire make of a provider; a reset is none.
var modes = map[adminv1.OverrideAction]state.Mode{
	adminv1.OverrideAction_OVERRIDE_ACTION_ENABLE:  state.Enabled,
	adminv1.OverrideAction_OVERRIDE_ACTION_DISABLE: state.Disabled,
	adminv1.OverrideAction_OVERRIDE_ACTION_DRAIN:   state.Draining,
}

// SetOverride puts the operator's word above the configuration.
func (s *Service) SetOverride(ctx context.Context, req *adminv1.SetOverrideRequest) (*adminv1.SetOverrideResponse, error) {
	o, err := s.Override(callerOf(ctx), Order{
		Node: admission.NodeID(req.GetNode()), Provider: admission.ProviderID(req.GetProvider()), Mode: modes[req.GetAction()],
	})
	if err != nil {
		return nil, rpcerr.From(err)
	}
	res := &adminv1.SetOverrideResponse{Durable: o.Lost == nil, InFlight: uint32(o.InFlight)}
	if o.Lost != nil {
		res.NotDurableBecause = o.Lost.Error()
	}
	if st := o.Override; st != nil {
		res.Override = &adminv1.Override{Mode: string(st.Mode), Since: timestamppb.New(st.Since), By: st.By}
	}
	return res, nil
}

// ResetEstimates forgets what the input estimate has learned.
func (s *Service) ResetEstimates(ctx context.Context, req *adminv1.ResetEstimatesRequest) (*adminv1.ResetEstimatesResponse, error) {
	return &adminv1.ResetEstimatesResponse{Forgotten: uint32(s.Forget(callerOf(ctx), req.GetTarget()))}, nil
}
