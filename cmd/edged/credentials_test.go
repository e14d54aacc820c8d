package edged

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/services/admin"
)

// keeping is an Edge that does not run, with a state folder.
func keeping(t *testing.T, log *bytes.Buffer) (e *Edge, file, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	file = filepath.Join(t.TempDir(), "edge.yaml")
	text := strings.Replace(small, `edge: {`, `edge: {auth: {mode: keys}, state_dir: '`+filepath.ToSlash(dir)+`', `, 1)
	text = strings.Replace(text, "models:", "  - {id: joins, providers: [{id: sim, type: simulator}]}\nmodels:", 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	e, err := New(Options{ConfigPath: file, Clock: clockwork.NewFakeClock(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(e.close)
	return e, file, dir
}

// Who made or took away what, from where, is in the log, and no secret.
func TestSecretsAreAudited(t *testing.T) {
	var log bytes.Buffer
	e, _, _ := keeping(t, &log)
	by, s := admin.Caller{Token: "laura", Address: "192.0.2.7:555"}, secretsOf{e}
	key, made, err := s.CreateKey(by, credentials.NewKey{Name: "laptop", Models: []string{"m"}})
	require.NoError(t, err)
	require.Equal(t, "laura", made.By)
	_, _, err = s.CreateKey(by, credentials.NewKey{Name: "x", Models: []string{"n"}})
	require.ErrorContains(t, err, `no model or route "n" is configured`)
	token, join, err := s.CreateJoinToken(by, "joins", 0)
	require.NoError(t, err)
	_, _, err = s.CreateJoinToken(by, "join", 0)
	require.ErrorContains(t, err, `did you mean "joins"`)
	_, err = s.RevokeKey(by, "laptop")
	require.NoError(t, err)
	_, err = s.RevokeNode(by, "joins")
	require.NoError(t, err)
	_, err = s.RevokeNode(by, "n")
	require.ErrorContains(t, err, "edit the file")
	for _, want := range []string{
		`msg="admin call" token=laura address=192.0.2.7:555 call="create key" name=laptop ok=true`,
		`call="create key" name=x ok=false error=`,
		`call="create join token" node=joins token_id=` + join.ID + ` ok=true`,
		`call="create join token" node=join token_id="" ok=false`,
		`call="revoke key" name=laptop durable=true ok=true`,
		`call="revoke node" node=joins was_connected=false join_tokens=1 durable=true ok=true`,
		`call="revoke node" node=n was_connected=false join_tokens=0 durable=false ok=false`,
	} {
		require.Contains(t, log.String(), want)
	}
	require.NotContains(t, log.String(), key)
	require.NotContains(t, log.String(), token)
}

// A refresh keeps what was made; what the file now holds wins, and the refresh says so.
func TestS08_ARefreshKeepsWhatWasMade(t *testing.T) {
	var log bytes.Buffer
	e, file, _ := keeping(t, &log)
	key, _, err := secretsOf{e}.CreateKey(admin.Caller{}, credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	_, err = e.Reload()
	require.NoError(t, err)
	_, ok := e.keyring.APIKey(key)
	require.True(t, ok)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(text, "openai: {api_keys: [{name: laptop, sha256: \""+auth.HashToken("other")+"\"}]}\n"...), 0o600))
	r, err := e.Reload()
	require.NoError(t, err)
	require.Contains(t, strings.Join(r.Warnings, "\n"), "the API key laptop that was made on the Edge does not pass")
	_, ok = e.keyring.APIKey(key)
	require.False(t, ok)
	_, ok = e.keyring.APIKey("other")
	require.True(t, ok)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	_, err = e.Reload()
	require.NoError(t, err)
	_, ok = e.keyring.APIKey(key)
	require.True(t, ok)
}

// The status says what is wrong with the kept credentials, whatever it is.
func TestTheStatusShowsTroubleWithCredentials(t *testing.T) {
	var log bytes.Buffer
	e, file, dir := keeping(t, &log)
	require.Empty(t, e.state().CredentialsProblem)
	s := secretsOf{e}
	_, _, err := s.CreateKey(admin.Caller{}, credentials.NewKey{Name: "laptop"})
	require.NoError(t, err)
	inTheWay := filepath.Join(dir, "credentials.json.next", "inside")
	require.NoError(t, os.MkdirAll(inTheWay, 0o700))
	out, err := s.RevokeKey(admin.Caller{}, "laptop")
	require.NoError(t, err)
	require.Error(t, out.Lost)
	require.Contains(t, e.state().CredentialsProblem, "would pass again after a restart")
	require.NoError(t, os.RemoveAll(filepath.Dir(inTheWay)))

	path := filepath.Join(dir, "credentials.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o600))
	again, err := New(Options{ConfigPath: file, Clock: clockwork.NewFakeClock(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err, "it starts all the same")
	defer again.close()
	require.Contains(t, again.state().CredentialsProblem, "none of the API keys")
}
