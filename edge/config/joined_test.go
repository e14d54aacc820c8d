package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/config"
)

// A node needs no token in the file where there is a folder for what it gets for a
// join token; it is known then, and nothing of the file lets it in.
func TestU04_ANodeWithoutATokenEntersByAJoinToken(t *testing.T) {
	const text = "nodes:\n  - {id: n, providers: [{id: p, type: simulator}]}\n"
	_, err := config.Parse("edge.yaml", []byte(text))
	require.ErrorContains(t, err, "edge.yaml:2:5: nodes[0]: missing; give token_sha256")
	require.ErrorContains(t, err, "set edge.state_dir")

	s, err := config.Parse("edge.yaml", []byte("edge: {state_dir: ./state}\n"+text))
	require.NoError(t, err)
	require.Len(t, s.Warnings, 1, "that there are no models")
	require.Empty(t, s.Credentials.Nodes)
	require.Equal(t, []string{"n"}, s.Credentials.Joined)
	k := auth.NewKeyring(s.Credentials)
	for _, secret := range []string{"", "n", string(make([]byte, 32))} {
		known, ok := k.Node("n", secret)
		require.True(t, known)
		require.False(t, ok)
	}
	_, err = config.Parse("edge.yaml", []byte("edge: {state_dir: ./state}\nnodes: [{id: n, token_sha256: zz}]\n"))
	require.Error(t, err, "a token that is wrong is not one that is missing")
}

// Keys that are made on the Edge are enough to ask for keys.
func TestKeysMadeOnTheEdgeAreAskedFor(t *testing.T) {
	_, err := config.Parse("edge.yaml", []byte("edge: {listen: \"0.0.0.0:8484\", insecure_h2c: true, auth: {mode: keys}}\n"))
	require.ErrorContains(t, err, "no openai.api_keys")
	s, err := config.Parse("edge.yaml", []byte("edge: {listen: \"0.0.0.0:8484\", insecure_h2c: true, auth: {mode: keys}, state_dir: ./state}\n"))
	require.NoError(t, err)
	require.Len(t, s.Warnings, 1, "that there are no models")
	require.False(t, s.Credentials.Open)
	_, err = config.Parse("edge.yaml", []byte("edge: {listen: \"0.0.0.0:8484\", insecure_h2c: true, state_dir: ./state}\n"))
	require.ErrorContains(t, err, "no openai.api_keys", "unless it is written that keys are asked for")
}
