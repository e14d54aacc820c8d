package up_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/cmd/iop/discover"
	"github.com/iop-dev/iop/cmd/iop/up"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
)

func server(kind discover.Kind, port string, capacity int, models ...string) discover.Server {
	s := discover.Server{Kind: kind, Address: "127.0.0.1:" + port, BaseURL: "http://127.0.0.1:" + port, Capacity: capacity}
	for _, id := range models {
		s.Models = append(s.Models, discover.Model{ID: id, Chat: !strings.Contains(id, "embed")})
	}
	return s
}

var secrets = up.Credentials{NodeTokenSHA256: auth.HashToken("node"), AdminTokenSHA256: auth.HashToken("admin")}

func TestU02_AModelOnSeveralProvidersHasThemAllAsCandidates(t *testing.T) {
	plan, err := up.NewPlan([]discover.Server{
		server(discover.Ollama, "11434", 0, "qwen3:8b", "shared"),
		server(discover.LlamaCpp, "8080", 4, "shared"),
		server(discover.LlamaCpp, "8081", 2, "other"),
	}, false, map[string]int{"ollama": 3})
	require.NoError(t, err)
	snapshot, err := plan.EdgeSnapshot("127.0.0.1:0", t.TempDir(), secrets)
	require.NoError(t, err, "the generated configuration is a valid one")
	require.Empty(t, snapshot.Warnings)

	capacities := map[string]int{}
	for _, r := range snapshot.Admission.Resources {
		capacities[r.Key.String()] = r.Capacity
	}
	require.Equal(t, map[string]int{"local/ollama": 3, "local/llamacpp": 4, "local/llamacpp-2": 2}, capacities)
	groups := map[admission.GroupKey][]string{}
	for _, g := range snapshot.Admission.Groups {
		for _, c := range g.Candidates {
			groups[g.Key] = append(groups[g.Key], c.Resource.String()+" "+c.Target)
		}
	}
	require.Equal(t, map[admission.GroupKey][]string{
		"qwen3:8b": {"local/ollama qwen3:8b"},
		"shared":   {"local/ollama shared", "local/llamacpp shared"},
		"other":    {"local/llamacpp-2 other"},
	}, groups)
	require.True(t, snapshot.Credentials.Open, "no key on loopback")
	require.Len(t, snapshot.Credentials.Admin, 1)
}

func TestU02_WithoutAServerTheSimulatorServes(t *testing.T) {
	plan, err := up.NewPlan(nil, false, nil)
	require.NoError(t, err)
	require.Equal(t, up.SimulatorModel, plan.ChatModel())
	snapshot, err := plan.EdgeSnapshot("127.0.0.1:0", "", up.Credentials{NodeTokenSHA256: secrets.NodeTokenSHA256})
	require.NoError(t, err)
	require.Len(t, snapshot.Models, 1)
	require.Empty(t, snapshot.Credentials.Admin, "no token, no admin")
	_, err = plan.NodeConfig("127.0.0.1:8484")
	require.NoError(t, err)
}

func TestU02_TheNodeMayReachTheFoundServersOnly(t *testing.T) {
	plan, err := up.NewPlan([]discover.Server{server(discover.Ollama, "11434", 0, "m")}, false, nil)
	require.NoError(t, err)
	config, err := plan.NodeConfig("127.0.0.1:8484")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8484", config.EdgeURL)
	require.Equal(t, up.NodeID, config.NodeID)
	require.True(t, config.Reconnect.Unlimited())
	require.NoError(t, config.Endpoints.Allows("http://127.0.0.1:11434"))
	require.Error(t, config.Endpoints.Allows("http://127.0.0.1:8080"))
}

func TestU02_TheModelToTryAnswersChat(t *testing.T) {
	for _, c := range []struct {
		servers []discover.Server
		want    string
	}{
		{[]discover.Server{server(discover.Ollama, "1", 0, "embed-a", "chat-b")}, "chat-b"},
		{[]discover.Server{server(discover.Ollama, "1", 0, "embed-a"), server(discover.VLLM, "2", 0, "chat-c")}, "chat-c"},
		{[]discover.Server{server(discover.Ollama, "1", 0, "embed-a")}, "embed-a"},
	} {
		plan, err := up.NewPlan(c.servers, false, nil)
		require.NoError(t, err)
		require.Equal(t, c.want, plan.ChatModel())
	}
}

func TestU02_ACapacityForNobodyIsAnError(t *testing.T) {
	_, err := up.NewPlan(nil, true, map[string]int{"ollama": 2})
	require.EqualError(t, err, "--capacity ollama: no such provider; there is simulator")
}

func TestU01_OnlyLoopbackIsServed(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:8484", "[::1]:0", "localhost:80", "127.8.0.1:1"} {
		require.NoError(t, up.CheckListen(listen), listen)
	}
	for listen, say := range map[string]string{
		"0.0.0.0:8484":        "neither keys nor TLS",
		":8484":               "neither keys nor TLS",
		"192.168.1.5:8484":    "iop edge -c edge.yaml",
		"example.org:8484":    "neither keys nor TLS",
		"8484":                "expected host:port",
		"127.0.0.1:http":      "expected a port",
		"127.0.0.1:70000":     "expected a port",
		"[::ffff:10.0.0.1]:1": "neither keys nor TLS",
	} {
		require.ErrorContains(t, up.CheckListen(listen), say, listen)
	}
}

func TestU01_TheBannerFitsTwelveLines(t *testing.T) {
	var many []discover.Server
	for range 9 {
		many = append(many, server(discover.Ollama, "11434", 0, "m"))
	}
	plan, err := up.NewPlan(many, false, nil)
	require.NoError(t, err)
	banner := up.Banner{
		Plan: plan, Address: "127.0.0.1:8486", Wanted: "127.0.0.1:8484", Searched: true,
		Unknown: []string{"127.0.0.1:8000"}, Edges: []string{"127.0.0.1:8080"}, AdminTokenFile: "/home/me/.config/iop/admin.token",
		Dashboard: "http://127.0.0.1:8486/dashboard/",
	}
	var out bytes.Buffer
	require.NoError(t, banner.Write(&out))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, 12)
	require.Contains(t, out.String(), "127.0.0.1:8484 is taken")
	require.Contains(t, out.String(), "and 9 more")
	require.Contains(t, out.String(), "\nDashboard: http://127.0.0.1:8486/dashboard/ ")
}

func TestU01_TheBannerSaysWhatWasFound(t *testing.T) {
	plan, err := up.NewPlan([]discover.Server{
		server(discover.Ollama, "11434", 0, "a", "b", "c"),
		server(discover.LlamaCpp, "8080", 4, "d"),
	}, false, map[string]int{})
	require.NoError(t, err)
	banner := up.Banner{Plan: plan, Address: "127.0.0.1:8484", Wanted: "127.0.0.1:8484", Searched: true,
		Unknown: []string{"127.0.0.1:8000"}, Empty: []discover.Server{server(discover.LMStudio, "1234", 0)}}
	var out bytes.Buffer
	require.NoError(t, banner.Write(&out))
	for _, line := range []string{
		"http://127.0.0.1:8484/v1",
		"ollama 127.0.0.1:11434: 3 models, 1 at a time (if it can do more: --capacity ollama=N)",
		"llamacpp 127.0.0.1:8080: 1 model, 4 at a time\n",
		"127.0.0.1:8000: unknown kind, not used (to use it: --provider openai=http://127.0.0.1:8000)",
		"lmstudio 127.0.0.1:1234: no models yet, not used",
		`-d '{"model":"a","stream":true,`,
		"\"Several machines\" in README.md",
		"iop node -c node.yaml",
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "taken")
	require.NotContains(t, out.String(), "Admin token")
	require.NotContains(t, out.String(), "Dashboard", "of no use without a token")
}

// A model's name is its server's choice: it must neither leave the quotes of
// the shell nor send the terminal anything.
func TestU01_TheCurlLineQuotesHostileNames(t *testing.T) {
	plan, err := up.NewPlan([]discover.Server{server(discover.OpenAI, "1", 0, "it's\x1b[2J$(reboot)\n<m>")}, false, nil)
	require.NoError(t, err)
	banner := up.Banner{Plan: plan, Address: "127.0.0.1:1", Wanted: "127.0.0.1:1"}
	var out bytes.Buffer
	require.NoError(t, banner.Write(&out))
	require.Contains(t, banner.Curl(), `-d '{"model":"it'\''s\u001b[2J$(reboot)\n<m>",`)
	require.NotContains(t, out.String(), "\x1b")
}

func TestU01_TheAdminTokenIsMadeOnceAndIsTheUsersOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "iop")
	token, file, err := up.AdminToken(dir)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(token), 40)
	again, sameFile, err := up.AdminToken(dir)
	require.NoError(t, err)
	require.Equal(t, token, again)
	require.Equal(t, file, sameFile)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
	_, _, err = up.AdminToken(dir)
	require.ErrorContains(t, err, "is empty")
	_, _, err = up.AdminToken(file)
	require.Error(t, err, "a file is no folder")
}
