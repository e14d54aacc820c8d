package admin

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/state"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

var operator = Caller{Token: "operator", Address: "192.0.2.7:4711"}

func TestReloadAndCheckTellWhatWasFound(t *testing.T) {
	var by []Caller
	s := &Service{
		Reload: func(c Caller) (Reload, error) {
			by = append(by, c)
			return Reload{Revision: 7, Changes: []string{"a"}, NeedsRestart: []string{"b"}, Warnings: []string{"c"}}, nil
		},
		Check: func(c Caller) (Check, error) {
			by = append(by, c)
			return Check{Errors: []string{"e"}, Warnings: []string{"w"}}, nil
		},
	}
	ctx := WithCaller(t.Context(), operator)
	r, err := s.ReloadConfig(ctx, &adminv1.ReloadConfigRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 7, r.GetConfigRevision())
	require.Equal(t, [][]string{{"a"}, {"b"}, {"c"}}, [][]string{r.GetChanges(), r.GetNeedsRestart(), r.GetWarnings()})
	c, err := s.CheckConfig(ctx, &adminv1.CheckConfigRequest{})
	require.NoError(t, err)
	require.False(t, c.GetValid())
	require.Equal(t, [][]string{{"e"}, {"w"}}, [][]string{c.GetErrors(), c.GetWarnings()})
	s.Check = func(Caller) (Check, error) { return Check{Changes: []string{"x"}, NeedsRestart: []string{"y"}}, nil }
	c, err = s.CheckConfig(ctx, &adminv1.CheckConfigRequest{})
	require.NoError(t, err)
	require.True(t, c.GetValid())
	require.Equal(t, [][]string{{"x"}, {"y"}}, [][]string{c.GetChanges(), c.GetNeedsRestart()})
	require.Equal(t, []Caller{operator, operator}, by, "the caller is passed on")
}

// Files need not have names that a message can hold.
func TestFindingsAreOfUTF8(t *testing.T) {
	odd := []string{"ed\xffge.yaml:1:2: unknown key"}
	s := &Service{
		Reload: func(Caller) (Reload, error) { return Reload{Warnings: odd}, nil },
		Check:  func(Caller) (Check, error) { return Check{Errors: odd, Warnings: odd}, nil },
	}
	r, err := s.ReloadConfig(t.Context(), nil)
	require.NoError(t, err)
	_, err = proto.Marshal(r)
	require.NoError(t, err)
	c, err := s.CheckConfig(t.Context(), nil)
	require.NoError(t, err)
	_, err = proto.Marshal(c)
	require.NoError(t, err)
	require.Equal(t, []string{"ed?ge.yaml:1:2: unknown key"}, c.GetErrors())
}

func TestAnOrderIsTranslated(t *testing.T) {
	since := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	var got Order
	out := Outcome{InFlight: 3, Override: &state.Override{Mode: state.Draining, Since: since, By: "operator"}}
	s := &Service{Override: func(c Caller, o Order) (Outcome, error) {
		require.Equal(t, operator, c)
		got = o
		return out, nil
	}}
	ctx := WithCaller(t.Context(), operator)
	for action, mode := range map[adminv1.OverrideAction]state.Mode{
		adminv1.OverrideAction_OVERRIDE_ACTION_ENABLE: state.Enabled, adminv1.OverrideAction_OVERRIDE_ACTION_DISABLE: state.Disabled,
		adminv1.OverrideAction_OVERRIDE_ACTION_DRAIN: state.Draining, adminv1.OverrideAction_OVERRIDE_ACTION_RESET: "",
	} {
		r, err := s.SetOverride(ctx, &adminv1.SetOverrideRequest{Node: "n", Provider: "p", Action: action})
		require.NoError(t, err)
		require.Equal(t, Order{Node: "n", Provider: "p", Mode: mode}, got)
		require.True(t, r.GetDurable())
		require.EqualValues(t, 3, r.GetInFlight())
		require.Equal(t, "draining operator", r.GetOverride().GetMode()+" "+r.GetOverride().GetBy())
		require.Equal(t, since, r.GetOverride().GetSince().AsTime())
	}
	out = Outcome{Lost: errors.New("the disk is full")}
	r, err := s.SetOverride(ctx, &adminv1.SetOverrideRequest{Node: "n", Action: adminv1.OverrideAction_OVERRIDE_ACTION_RESET})
	require.NoError(t, err)
	require.False(t, r.GetDurable())
	require.Equal(t, "the disk is full", r.GetNotDurableBecause())
	require.Nil(t, r.GetOverride())
}

func TestARequestIsCancelledByEitherName(t *testing.T) {
	var got []Target
	s := &Service{Cancel: func(c Caller, target Target) (Cancelled, error) {
		require.Equal(t, operator, c)
		got = append(got, target)
		return Cancelled{Seq: 9, ID: "mine", State: "waiting"}, nil
	}}
	ctx := WithCaller(t.Context(), operator)
	for _, r := range []*adminv1.CancelRequestRequest{
		{Request: &adminv1.CancelRequestRequest_RequestId{RequestId: "mine"}},
		{Request: &adminv1.CancelRequestRequest_EnqueueSeq{EnqueueSeq: 9}},
	} {
		was, err := s.CancelRequest(ctx, r)
		require.NoError(t, err)
		require.EqualValues(t, 9, was.GetEnqueueSeq())
		require.Equal(t, "mine waiting", was.GetRequestId()+" "+was.GetState())
	}
	require.Equal(t, []Target{{ID: "mine"}, {Seq: 9}}, got)
}

func TestEstimatesAreForgotten(t *testing.T) {
	s := &Service{Forget: func(c Caller, target string) int {
		require.Equal(t, operator, c)
		require.Equal(t, "qwen", target)
		return 4
	}}
	r, err := s.ResetEstimates(WithCaller(t.Context(), operator), &adminv1.ResetEstimatesRequest{Target: "qwen"})
	require.NoError(t, err)
	require.EqualValues(t, 4, r.GetForgotten())
}

// Each call gives its error a code, and what nobody planned for is not told.
func TestErrorsHaveCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want connect.Code
	}{
		{dispatch.ErrNotLive, connect.CodeNotFound},
		{dispatch.ErrAmbiguous, connect.CodeFailedPrecondition},
		{rpcerr.ErrNoConfigFile, connect.CodeFailedPrecondition},
		{rpcerr.ErrStopping, connect.CodeUnavailable},
		{&rpcerr.NotConfiguredError{What: "node", Name: "x"}, connect.CodeNotFound},
		{errors.New("/etc/secret: broken"), connect.CodeInternal},
	} {
		s := &Service{
			Reload:   func(Caller) (Reload, error) { return Reload{}, c.err },
			Check:    func(Caller) (Check, error) { return Check{}, c.err },
			Cancel:   func(Caller, Target) (Cancelled, error) { return Cancelled{}, c.err },
			Override: func(Caller, Order) (Outcome, error) { return Outcome{}, c.err },
		}
		for name, call := range map[string]func(context.Context) error{
			"reload":   func(ctx context.Context) error { _, err := s.ReloadConfig(ctx, nil); return err },
			"check":    func(ctx context.Context) error { _, err := s.CheckConfig(ctx, nil); return err },
			"cancel":   func(ctx context.Context) error { _, err := s.CancelRequest(ctx, nil); return err },
			"override": func(ctx context.Context) error { _, err := s.SetOverride(ctx, nil); return err },
		} {
			err := call(t.Context())
			require.Equal(t, c.want, connect.CodeOf(err), "%s: %v", name, err)
			require.NotContains(t, err.Error(), "secret")
		}
	}
}
