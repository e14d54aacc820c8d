//go:build !windows

package up

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// paste runs the printed curl line in a shell.
func (p *process) paste() string {
	p.t.Helper()
	for _, line := range p.lines {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			cmd := exec.Command("sh", "-c", strings.Replace(line, "curl ", "curl --max-time 30 --silent --show-error --fail-with-body ", 1))
			out, err := cmd.CombinedOutput()
			require.NoError(p.t, err, "%s\n%s", out, p.errors())
			return string(out)
		}
	}
	p.t.Fatalf("no curl line in %q", p.lines)
	return ""
}

func needCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
}

// said puts the content of a stream together.
func said(t *testing.T, sse string) (content string, models map[string]bool) {
	t.Helper()
	models = map[string]bool{}
	for line := range strings.Lines(sse) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Model   string
			Choices []struct{ Delta struct{ Content string } }
		}
		require.NoError(t, json.Unmarshal([]byte(data), &chunk), line)
		models[chunk.Model] = true
		for _, c := range chunk.Choices {
			content += c.Delta.Content
		}
	}
	return content, models
}

func TestU01_ThePrintedCurlLineStreamsFromTheSimulator(t *testing.T) {
	needCurl(t)
	p := start(t, "--simulator", "--listen", "127.0.0.1:0")
	require.LessOrEqual(t, len(p.lines), 12, p.text())
	require.Contains(t, p.text(), "simulator (built in, as asked)")
	require.NotContains(t, p.text(), "taken")

	sse := p.paste()
	require.Contains(t, sse, "data: [DONE]")
	content, models := said(t, sse)
	require.NotEmpty(t, content)
	require.Equal(t, map[string]bool{"simulator": true}, models)

	require.Zero(t, p.stop(ctrlC), p.errors())
	require.NotContains(t, p.errors(), "level=", "a clean run logs neither warnings nor errors")
}

func TestU01_TheAdminTokenIsWhereItIsPrinted(t *testing.T) {
	p := start(t, "--simulator", "--listen", "127.0.0.1:0")
	found := regexp.MustCompile(`Admin token: in (.*)`).FindStringSubmatch(p.text())
	require.Len(t, found, 2, p.text())
	token, err := os.ReadFile(found[1])
	require.NoError(t, err)

	url := regexp.MustCompile(`http://[^/]+`).FindString(p.text()) + "/iop.control.v1.ControlService/GetEdgeNodeSnapshot"
	ask := func(token string) int {
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, ask(strings.TrimSpace(string(token))))
	require.Equal(t, http.StatusUnauthorized, ask("wrong"))
	http.DefaultClient.CloseIdleConnections()
	require.Zero(t, p.stop(ctrlC), p.errors())
}

func TestU02_AGivenProviderServesItsModels(t *testing.T) {
	needCurl(t)
	ollama := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/version":
			fmt.Fprint(w, `{"version":"0.6.5"}`)
		case "/api/tags":
			fmt.Fprint(w, `{"models":[{"name":"nomic-embed-text"},{"name":"it's:1b"},{"name":"other:7b"}]}`)
		case "/v1/chat/completions":
			body, _ := io.ReadAll(r.Body)
			var request struct{ Model string }
			_ = json.Unmarshal(body, &request)
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"model\":%q,\"choices\":[{\"delta\":{\"content\":\"from ollama\"}}]}\n\ndata: [DONE]\n\n", request.Model)
		default:
			http.NotFound(w, r)
		}
	}))
	defer ollama.Close()
	p := start(t, "--provider", "ollama="+ollama.URL, "--listen", "127.0.0.1:0", "--capacity", "ollama=2")
	require.Contains(t, p.text(), "ollama "+strings.TrimPrefix(ollama.URL, "http://")+": 3 models, 2 at a time")
	require.NotContains(t, p.text(), "simulator")

	content, models := said(t, p.paste())
	require.Equal(t, "from ollama", content)
	require.Equal(t, map[string]bool{"it's:1b": true}, models, "the first model that answers chat")
	require.Zero(t, p.stop(ctrlC), p.errors())
}

func TestU01_ATakenPortIsPassedOverAndNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	p := start(t, "--simulator", "--listen", taken.Addr().String())
	require.Contains(t, p.text(), taken.Addr().String()+" is taken")
	require.NotContains(t, p.text(), "IOP serves http://"+taken.Addr().String()+"/")
	response, err := http.Get(regexp.MustCompile(`http://[^/]+`).FindString(p.text()) + "/v1/models")
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Contains(t, string(body), `"simulator"`)
	http.DefaultClient.CloseIdleConnections()

	// The stop of a service manager is as good as Ctrl-C.
	require.Zero(t, p.stop(term), p.errors())
}
