//go:build !windows

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// H01: a file that is saved as editors and deployments do is read again by itself,
// and so is the next one, and the one after that.
func TestCase_H01_EverySaveTakesEffect(t *testing.T) {
	write := func(t *testing.T, path string, text []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	for _, c := range []struct {
		name string
		// from makes a file that is named elsewhere of it, if the save needs that.
		from func(t *testing.T, file string)
		save func(t *testing.T, file string, n int, text []byte)
	}{
		{"vim", nil, func(t *testing.T, file string, _ int, text []byte) {
			dir := filepath.Dir(file)
			write(t, filepath.Join(dir, "4913"), nil) // may the folder be written?
			require.NoError(t, os.Remove(filepath.Join(dir, "4913")))
			require.NoError(t, os.Rename(file, file+"~"))
			write(t, file, text)
			require.NoError(t, os.Remove(file+"~"))
		}},
		{"moved over", nil, func(t *testing.T, file string, _ int, text []byte) {
			write(t, file+".new", text)
			require.NoError(t, os.Rename(file+".new", file))
		}},
		{"a symlink swapped", func(t *testing.T, file string) {
			require.NoError(t, os.Rename(file, file+".0"))
			require.NoError(t, os.Symlink(filepath.Base(file)+".0", file))
		}, func(t *testing.T, file string, n int, text []byte) {
			next := fmt.Sprint(file, ".", n)
			write(t, next, text)
			require.NoError(t, os.Symlink(filepath.Base(next), file+".link"))
			require.NoError(t, os.Rename(file+".link", file))
		}},
		{"written in place", nil, func(t *testing.T, file string, _ int, text []byte) { write(t, file, text) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := func(capacity int) object {
				return edgeFile([]object{nodeConfig("n", object{"id": "p", "type": "simulator", "capacity": capacity})}, []object{model("m", "n/p=x")})
			}
			file := filepath.Join(t.TempDir(), "edge.yaml")
			writeYAML(t, file, site(10))
			if c.from != nil {
				c.from(t, file)
			}
			r := startAt(t, file)
			for n := 1; n <= 3; n++ {
				text, err := yaml.Marshal(site(10 + n))
				require.NoError(t, err)
				c.save(t, file, n, text)
				r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool {
					return s.GetNodes()[0].GetProviders()[0].GetConfiguredCapacity() == uint32(10+n)
				}, "save %d has taken effect", n)
			}
		})
	}
}

// models is the catalogue as a client lists it.
func (r *rig) models() (ids []string) {
	r.t.Helper()
	var list struct{ Data []struct{ ID string } }
	require.NoError(r.t, json.Unmarshal([]byte(r.fetch(r.t.Context(), http.MethodGet, "/v1/models", nil).body), &list))
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

// providers is what status shows of the first node.
func (r *rig) providers() (ids []string) {
	r.t.Helper()
	for _, p := range r.snapshot().GetNodes()[0].GetProviders() {
		ids = append(ids, p.GetId())
	}
	return ids
}

// H03: while its capacity, priority, and other fields change, a model is served
// and listed without a gap.
func TestCase_H03_AChangedModelIsServedWithoutAGap(t *testing.T) {
	s := greets(t)
	site := func(n int) object {
		return edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1+n%3, object{"priority": n % 2, "request_timeout_ms": 60000 + n}))},
			[]object{model("m", "n/p=x")}, object{"provider_pool": object{"max_queue": 64 + n}}, calm)
	}
	r := start(t, site(0), "n")
	over := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if a := r.ask(t.Context(), chatBody("m", false, "")); a.err != nil || a.status != http.StatusOK {
					t.Errorf("a gap: %+v", a)
					return
				}
			}
		})
	}
	for n := 1; n <= 12; n++ {
		r.refresh(site(n))
		require.Equal(t, []string{"m"}, r.models())
	}
	close(over)
	load.Wait()
	_, peak, _, _ := s.counts()
	require.LessOrEqual(t, peak, 3)
	r.quiet()
}

// H04, H05, G12 and G20: what is renamed or deleted by a refresh is gone at once
// from list, status and routing, and its running requests end as they would have.
func TestCase_G12_G20_H04_H05_WhatIsGoneIsGoneAndWhatRunsEnds(t *testing.T) {
	type site struct{ nodes, models []object }
	for _, c := range []struct {
		name      string
		then      func(url string) site
		old       int    // status of a request for the old name
		code      string // of its error
		now       string // a model that is served then, if any
		models    []string
		providers []string
	}{
		{"model renamed", func(url string) site {
			return site{[]object{nodeConfig("n", provider("p", url, 4))}, []object{model("new", "n/p=x")}}
		}, http.StatusNotFound, "model_not_found", "new", []string{"new"}, []string{"p"}},
		{"model deleted", func(url string) site {
			return site{[]object{nodeConfig("n", provider("p", url, 4))}, []object{model("other", "n/p=y")}}
		}, http.StatusNotFound, "model_not_found", "other", []string{"other"}, []string{"p"}},
		{"provider deleted", func(url string) site {
			return site{[]object{nodeConfig("n", object{"id": "spare", "type": "simulator"})}, []object{model("other", "n/spare=y")}}
		}, http.StatusNotFound, "model_not_found", "other", []string{"other"}, []string{"spare"}},
		{"provider deleted, its model left", func(url string) site {
			return site{[]object{nodeConfig("n", object{"id": "spare", "type": "simulator"})}, []object{model("old"), model("other", "n/spare=y")}}
		}, http.StatusServiceUnavailable, "provider_unavailable", "other", []string{"old", "other"}, []string{"spare"}},
		{"provider renamed", func(url string) site {
			return site{[]object{nodeConfig("n", provider("q", url, 4))}, []object{model("old", "n/q=x")}}
		}, http.StatusOK, "", "old", []string{"old"}, []string{"q"}},
		{"provider created anew", func(url string) site {
			return site{[]object{nodeConfig("n", provider("p", url+"/v1", 4, object{"type": "vllm"}))}, []object{model("old", "n/p=z")}}
		}, http.StatusOK, "", "old", []string{"old"}, []string{"p"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t)
			s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
				target := asked(t, body)
				if strings.Contains(string(body), `"stream":false`) {
					complete(w, target, "hi")
					return
				}
				_ = sse(w, chunk(target, "begun "))
				if g.wait(r) {
					_ = sse(w, lastChunk(target))
					_ = sse(w, "[DONE]")
				}
			})
			r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 4))}, []object{model("old", "n/p=x")}, calm), "n")
			stream, end := r.begin(chatBody("old", true, ""))
			defer end()
			then := c.then(s.URL)
			r.refresh(edgeFile(then.nodes, then.models, calm))
			require.Equal(t, c.models, r.models())
			require.Equal(t, c.providers, r.providers())
			a := r.ask(t.Context(), chatBody("old", false, ""))
			require.Equal(t, c.old, a.status, a.body)
			if c.code != "" {
				require.Equal(t, c.code, a.code(t))
			}
			require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody(c.now, false, "")).status)

			g.release()
			rest, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), string(rest))
			require.NotContains(t, string(rest), `"error"`)
			r.quiet()
			require.Equal(t, c.providers, r.providers())
		})
	}
}

// H06: refreshes of every kind while three streams run and two requests wait: all
// five end whole.
func TestCase_H06_ARefreshEndsNothing(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		_ = sse(w, chunk(target, "begun "))
		if g.wait(r) {
			_ = sse(w, lastChunk(target))
			_ = sse(w, "[DONE]")
		}
	})
	site := func(capacity int, more ...object) object {
		return edgeFile([]object{nodeConfig("n", provider("p", s.URL, capacity))}, []object{model("m", "n/p=x")}, append(more, calm)...)
	}
	r := start(t, site(3), "n")
	var streams []*bufio.Reader
	for range 3 {
		stream, end := r.begin(chatBody("m", true, ""))
		defer end()
		streams = append(streams, stream)
	}
	queued := []<-chan answer{r.background(t.Context(), chatBody("m", true, "")), r.background(t.Context(), chatBody("m", true, ""))}
	r.waiting(2)
	for _, file := range []object{
		site(3, object{"provider_pool": object{"max_queue": 1}}), // fewer than wait
		site(1),
		site(3, object{"openai": object{"idle_timeout_ms": 500000}}),
		edgeFile([]object{nodeConfig("n", provider("p", s.URL, 3), object{"id": "more", "type": "simulator"})},
			[]object{model("m", "n/p=x"), model("another", "n/more=x")}, calm),
	} {
		r.refresh(file)
		snap := r.snapshot()
		require.Equal(t, []uint32{3, 2}, []uint32{snap.GetInFlightTotal(), snap.GetQueueTotal()})
	}
	g.release()
	for _, stream := range streams {
		rest, err := io.ReadAll(stream)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), string(rest))
	}
	for _, q := range queued {
		a := <-q
		require.Equal(t, http.StatusOK, a.status)
		require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"), a.body)
	}
	r.quiet()
}

// H07: a file is broken, then mended. The Edge goes on with the old one, says where
// the new one is wrong, and takes the mended one, three times over.
func TestCase_H07_ABrokenFileIsToldByItsLineAndAMendedOneIsTaken(t *testing.T) {
	s := greets(t)
	site := func(capacity int) object {
		return edgeFile([]object{nodeConfig("n", provider("p", s.URL, capacity))}, []object{model("m", "n/p=x")}, calm)
	}
	r := start(t, site(1), "n")
	for n, broken := range []string{"edge: {id: e2e\nnodes: [", "edge:\n\tid: e2e\n", "edge:\n  id: e2e\nnodes: many\n"} {
		require.NoError(t, os.WriteFile(r.edgeYAML, []byte(broken), 0o600))
		require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGHUP))
		r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetLastRefreshError() != "" }, "the refusal shows")
		require.Regexp(t, `edge\.yaml:\d+:\d+: `, r.snapshot().GetLastRefreshError())
		require.EqualValues(t, 1+n, r.snapshot().GetNodes()[0].GetProviders()[0].GetConfiguredCapacity(), "the old one")
		r.serves()
		r.refresh(site(2 + n))
		require.EqualValues(t, 2+n, r.snapshot().GetNodes()[0].GetProviders()[0].GetConfiguredCapacity())
		r.serves()
	}
}

// H08: an Edge does not start with a misspelt key or a wrong type in one entry,
// whatever would be left of the rest, and names the field by its place.
func TestCase_H08_ATypoIsNoStart(t *testing.T) {
	text, err := yaml.Marshal(edgeFile([]object{nodeConfig("n", provider("p", "http://127.0.0.1:9", 1))}, []object{model("m", "n/p=x")}))
	require.NoError(t, err)
	for _, c := range []struct{ right, wrong, want string }{
		{"providers:", "provders:", "provders\" (did you mean \"providers\"?)"},
		{"models:", "model:", "model\" (did you mean \"models\"?)"},
		{"capacity: 1", "capacity: one", `capacity: found the text "one"`},
		{"capacity: 1", "capacity: [1]", `capacity: found`},
	} {
		wrong := strings.Replace(string(text), c.right, c.wrong, 1)
		require.NotEqual(t, string(text), wrong)
		file := filepath.Join(t.TempDir(), "edge.yaml")
		require.NoError(t, os.WriteFile(file, []byte(wrong), 0o600))
		p := startProcess(t, "edge", "edge", "-c", file)
		require.Equal(t, 4, p.exit(t), p.log())
		require.Regexp(t, `edge\.yaml:\d+:\d+: `, p.log())
		require.Contains(t, p.log(), c.want)
		require.Zero(t, p.said(`"listening"`))
	}
}

// H09: a file is checked beside an Edge that has its port: exit code 0 or 1 with
// reasons, and the Edge does not notice.
func TestCase_H09_AFileIsCheckedWhileItsPortIsInUse(t *testing.T) {
	file := edgeFile([]object{nodeConfig("n", provider("p", "http://127.0.0.1:9", 1))}, []object{model("m", "n/p=x")})
	file["edge"].(object)["listen"] = freePort(t)
	r := start(t, file)
	check := func() (string, int) {
		c := exec.Command(binary, "config", "check", "-c", r.edgeYAML)
		out, _ := c.CombinedOutput()
		return string(out), c.ProcessState.ExitCode()
	}
	out, code := check()
	require.Zero(t, code, out)
	text, err := os.ReadFile(r.edgeYAML)
	require.NoError(t, err)
	bad := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(bad, []byte(strings.Replace(string(text), "capacity: 1", "capacity: -1", 1)), 0o600))
	r.edgeYAML = bad
	out, code = check()
	require.Equal(t, 1, code)
	require.Regexp(t, `edge\.yaml:\d+:\d+: .*capacity`, out)
	require.Equal(t, http.StatusOK, r.fetch(t.Context(), http.MethodGet, "/healthz", nil).status)
}
