package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the tests of the public cases share.

// fetch sends a request with the site's key and reads the answer to its end. header holds names and values in turn; an empty value removes a
// field.
func (r *rig) fetch(ctx context.Context, method, path string, body io.Reader, header ...string) answer {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, body)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(text), err}
}

// chat asks a model under a request id of the test's own, by which the Edge's log tells what became of it.
func (r *rig) chat(id, body string) answer {
	return r.fetch(r.t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body), "X-Request-Id", id)
}

// ended waits for the Edge's log line about a request: what an operator sees of it.
func (r *rig) ended(id string) map[string]any {
	r.t.Helper()
	var found map[string]any
	require.Eventually(r.t, func() bool {
		for line := range strings.SplitSeq(r.edge.log(), "\n") {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == "request ended" && entry["request_id"] == id {
				require.Nil(r.t, found, "request %s has ended twice", id)
				found = entry
			}
		}
		return found != nil
	}, 20*time.Second, 10*time.Millisecond, "the end of request %s", id)
	return found
}

// site starts an Edge and its nodes for a test in which no node is lost: with heartbeats so slow that a busy machine loses none either.
func site(t *testing.T, file object, nodes ...string) *rig {
	t.Helper()
	file["edge"].(object)["heartbeat"] = object{"interval_ms": 5000, "timeout_ms": 15000}
	return start(t, file, nodes...)
}

// single is a site of one provider of capacity 1.
func single(t *testing.T, s *stub) *rig {
	t.Helper()
	return site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")}), "n")
}

// serving starts one node with one provider, which serves each target under the target's own name with an "m-" before it.
func serving(t *testing.T, s *stub, capacity int, targets []string, more ...object) *rig {
	t.Helper()
	var models []object
	for _, target := range targets {
		models = append(models, model("m-"+target, "n/p="+target))
	}
	return site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, capacity))}, models, more...), "n")
}

// passes lets time pass in a provider; false when its client is gone.
func passes(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
