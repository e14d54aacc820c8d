package openai

import (
	"net/http"
	"strings"

	"github.com/iop-dev/iop/edge/auth"
)

// ollama is how clients of Ollama's API read errors: in words alone, and in a stream on a line of its own.
var ollama = &dialect{body: ollamaBody, after: "\n"}

func ollamaBody(p problem) []byte {
	return mustJSON(struct {
		Error string `json:"error"`
	}{p.message})
}

// ollamaAPI is below which Ollama's own API lies.
const ollamaAPI = "/api/"

// ollamaPage is a part of Ollama's API that the Edge answers by itself.
type ollamaPage struct {
	allow string
	// open pages are answered without a key.
	open  bool
	serve func(h *Handler, w http.ResponseWriter, r *http.Request, s *active, key *auth.APIKey) *problem
}

var ollamaPages = map[string]*ollamaPage{
	"/":            {allow: reading, open: true, serve: ollamaProbe},
	"/api/version": {allow: reading, serve: ollamaVersion},
	"/api/tags":    {allow: reading, serve: ollamaTags},
	"/api/ps":      {allow: reading, serve: ollamaRunning},
	"/api/show":    {allow: http.MethodPost, serve: ollamaShow},
}

// unmanaged answers for everything that would change which models a provider has.
var unmanaged = &ollamaPage{allow: "GET, HEAD, POST, DELETE", serve: ollamaUnmanaged}

// ollamaPageOf is nil where the Edge has nothing of its own to say.
func ollamaPageOf(path string) *ollamaPage {
	switch path {
	case "/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete":
		return unmanaged
	}
	if strings.HasPrefix(path, "/api/blobs/") {
		return unmanaged
	}
	return ollamaPages[path]
}

// ollamaProbe is what clients, IOP's own search for providers among them, compare to tell an Ollama. That it is an Edge stands in the header.
func ollamaProbe(_ *Handler, w http.ResponseWriter, r *http.Request, _ *active, _ *auth.APIKey) *problem {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte("Ollama is running"))
	}
	return nil
}

// ollamaLevel is the version of Ollama whose API this surface is held against; clients switch features by it. What follows the plus is no
// part of the version's order.
const ollamaLevel = "0.6.5+iop"

func ollamaVersion(_ *Handler, w http.ResponseWriter, r *http.Request, _ *active, _ *auth.APIKey) *problem {
	writeJSON(w, r, http.StatusOK, struct {
		Version string `json:"version"`
	}{ollamaLevel})
	return nil
}

func ollamaUnmanaged(*Handler, http.ResponseWriter, *http.Request, *active, *auth.APIKey) *problem {
	return &problem{status: http.StatusNotImplemented, code: "not_implemented", kind: invalidRequest, hangUp: true,
		message: "Models are not managed through IOP: pull, create, copy or delete them at the provider, and name them in the Edge's models."}
}
