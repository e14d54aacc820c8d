package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/dispatch"
)

func TestFrom(t *testing.T) {
	require.NoError(t, From(nil))
	for _, tt := range []struct {
		err  error
		code connect.Code
		says string
	}{
		{fmt.Errorf("reload: %w", configs.Problems{{File: "edge.yaml", Line: 3, Column: 5, Message: "no such node"}}), connect.CodeInvalidArgument, "edge.yaml:3:5"},
		{ErrUnauthenticated, connect.CodeUnauthenticated, "Bearer"},
		{ErrNoConfigFile, connect.CodeFailedPrecondition, "nothing to reload"},
		{ErrStopping, connect.CodeUnavailable, "stopping"},
		{fmt.Errorf("watch: %w", dispatch.ErrStopped), connect.CodeUnavailable, "stopping"},
		{&NotConfiguredError{What: "node", Name: "gx1O", Nearest: "gx10"}, connect.CodeNotFound, `no node "gx1O" is configured (did you mean "gx10"?)`},
		{fmt.Errorf("refresh: %w", &config.RefusedChangeError{File: "edge.yaml", Changes: []string{"edge.id: a -> b"}}), connect.CodeInvalidArgument, "edge.id: a -> b"},
		{fmt.Errorf("wait: %w", context.Canceled), connect.CodeCanceled, "canceled"},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), connect.CodeDeadlineExceeded, "deadline"},
		{fmt.Errorf("refused: %w", &configs.UnreadableError{Err: errors.New("edge.yaml is a folder, not a file")}), connect.CodeFailedPrecondition, "read configuration: edge.yaml is a folder, not a file"},
		{errors.New("open /etc/iop/secret: denied"), connect.CodeInternal, "internal error"},
	} {
		got := From(tt.err)
		require.Equal(t, tt.code, connect.CodeOf(got))
		require.ErrorContains(t, got, tt.says)
		require.NotContains(t, got.Error(), "/etc/iop/secret")
		require.Equal(t, got, From(got))
	}
}
