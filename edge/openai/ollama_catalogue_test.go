package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
)

var _ Core = (*broker.Broker)(nil)

// cut is a core of which one moment is told.
type cut admission.Snapshot

func (c cut) Snapshot() admission.Snapshot { return admission.Snapshot(c) }

func (r *rig) get(path string) reply {
	r.Helper()
	return r.do(r.request(http.MethodGet, path, ""))
}

func (r *rig) requireJSON(got reply, want string) {
	r.Helper()
	require.Equal(r, 200, got.StatusCode, got.body)
	require.Equal(r, "application/json", got.Header.Get("Content-Type"))
	require.JSONEq(r, want, got.body)
}

const (
	detailsOfM   = `{"parent_model":"","format":"","family":"","families":[],"parameter_size":"","quantization_level":"","context_length":262144}`
	detailsOfAny = `{"parent_model":"","format":"","family":"","families":[],"parameter_size":"","quantization_level":""}`
)

func TestOllamaCatalogue(t *testing.T) {
	s := settings()
	s.Models = s.Models[:2]
	s.Core = cut{Leases: []admission.LeaseState{
		{Group: "m", HandedOff: true}, {Group: "m", HandedOff: true}, {Group: "org/name"}, {Group: "gone", HandedOff: true},
	}}
	digest, other := ollamaDigest(&s.Models[0]), ollamaDigest(&s.Models[1])
	require.Len(t, digest, 64)
	require.NotEqual(t, digest, other)
	over(t, refuse(errors.New("asked")), s, func(r *rig) {
		r.requireJSON(r.get("/api/tags"), `{"models":[
			{"name":"m","model":"m","modified_at":"2026-11-30T14:29:00Z","size":0,"digest":"`+digest+`","details":`+detailsOfM+`},
			{"name":"org/name","model":"org/name","modified_at":"2026-11-30T14:29:00Z","size":0,"digest":"`+other+`","details":`+detailsOfAny+`}]}`)
		r.requireJSON(r.get("/api/ps"), `{"models":[
			{"name":"m","model":"m","size":0,"digest":"`+digest+`","details":`+detailsOfM+`,"size_vram":0,"context_length":262144}]}`)
		want := `{"details":` + detailsOfM + `,"modified_at":"2026-11-30T14:29:00Z","capabilities":[],
			"model_info":{"general.architecture":"unknown","general.basename":"m","general.parameter_count":0,
			"unknown.embedding_length":0,"unknown.context_length":262144}}`
		r.requireJSON(r.native("/api/show", `{"model":"m"}`), want)
		r.requireJSON(r.native("/api/show", `{"name":"m:latest","verbose":true}`), want)
		r.requireJSON(r.native("/api/show", `{"model":"org/name","name":"m"}`), `{"details":`+detailsOfAny+`,"modified_at":"2026-11-30T14:29:00Z","capabilities":[],
			"model_info":{"general.architecture":"unknown","general.basename":"org/name","general.parameter_count":0,"unknown.embedding_length":0}}`)
		for _, body := range []string{`{}`, `{"model":""}`} {
			r.requireOllamaError(r.native("/api/show", body), 400, `no "model"`)
		}
		for _, body := range []string{`[]`, `{"model":3}`, `{`, ``} {
			require.Equal(r, 400, r.native("/api/show", body).StatusCode, body)
		}
		r.requireOllamaError(r.native("/api/show", `{"model":"`+strings.Repeat("x", 2<<20)+`"}`), 413, "larger")

		var version struct{ Version string }
		require.NoError(r, json.Unmarshal([]byte(r.get("/api/version").body), &version))
		require.Regexp(r, `^\d+\.\d+\.\d+\+iop$`, version.Version)
	})
	s.Models, s.Core = nil, nil
	over(t, refuse(errors.New("asked")), s, func(r *rig) {
		r.requireJSON(r.get("/api/tags"), `{"models":[]}`)
		r.requireJSON(r.get("/api/ps"), `{"models":[]}`)
	})
}

func TestOllamaProbes(t *testing.T) {
	over(t, refuse(errors.New("asked")), settings(), func(r *rig) {
		got := r.get("/")
		require.Equal(r, 200, got.StatusCode)
		require.Equal(r, "Ollama is running", got.body)
		require.Equal(r, "text/plain; charset=utf-8", got.Header.Get("Content-Type"))
		for _, path := range []string{"/", "/api/tags", "/api/version", "/api/ps"} {
			got = r.do(r.request(http.MethodHead, path, ""))
			require.Equal(r, 200, got.StatusCode, path)
			require.Empty(r, got.body)
			got = r.do(r.request(http.MethodPost, path, "{}"))
			require.Equal(r, 405, got.StatusCode, path)
			require.Equal(r, "GET, HEAD", got.Header.Get("Allow"))
			require.Equal(r, 204, r.do(r.request(http.MethodOptions, path, "")).StatusCode, path)
		}
		r.requireOllamaError(r.get("/api/show"), 405, "POST")
		r.requireOllamaError(r.get("/api/"), 404, "nothing")
	})
}
