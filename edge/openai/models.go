package openai

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/iop-dev/iop/edge/auth"
)

const modelsPath = "/v1/models"

// modelObject is what strict clients need (F13), and the context window where it is stated.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Window  int    `json:"context_window_tokens,omitempty"`
}

func (s *active) object(m *Model) modelObject {
	return modelObject{ID: m.ID, Object: "model", Created: s.Created.Unix(), OwnedBy: "iop", Window: m.ContextWindow}
}

// anthropicModel is a model as the messages API's clients read it.
type anthropicModel struct {
	Type        string    `json:"type"`
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
	Window      int       `json:"max_input_tokens,omitempty"`
}

func (s *active) anthropicObject(m *Model) anthropicModel {
	return anthropicModel{Type: "model", ID: m.ID, DisplayName: m.ID, CreatedAt: s.Created.UTC().Truncate(time.Second), Window: m.ContextWindow}
}

// asksInAnthropic reports whether the catalogue is asked for by a client of the messages API, which always names its version.
func asksInAnthropic(r *http.Request) bool {
	return r.Header.Get("Anthropic-Version") != "" && (r.URL.Path == modelsPath || strings.HasPrefix(r.URL.Path, modelsPath+"/"))
}

// models serves the catalogue: every name that the caller's key can use, from the configuration alone, whatever is offline.
func (h *Handler) models(w http.ResponseWriter, r *http.Request, s *active, key *auth.APIKey) *problem {
	allowed := func(id string) bool { return key == nil || key.Allows(id) }
	if r.URL.Path == modelsPath {
		var usable []*Model
		for i := range s.Models {
			if m := &s.Models[i]; allowed(m.ID) {
				usable = append(usable, m)
			}
		}
		writeJSON(w, r, http.StatusOK, s.list(r, usable))
		return nil
	}
	// The escaped path, so that an id's own slashes and percent signs are told apart (F01).
	id, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), modelsPath+"/"))
	m := s.byID[id]
	if err != nil || m == nil || !allowed(id) {
		return unknownModel(id)
	}
	if asksInAnthropic(r) {
		writeJSON(w, r, http.StatusOK, s.anthropicObject(m))
	} else {
		writeJSON(w, r, http.StatusOK, s.object(m))
	}
	return nil
}

// list is the whole catalogue on one page.
func (s *active) list(r *http.Request, models []*Model) any {
	if asksInAnthropic(r) {
		page := struct {
			Data    []anthropicModel `json:"data"`
			HasMore bool             `json:"has_more"`
			FirstID *string          `json:"first_id"`
			LastID  *string          `json:"last_id"`
		}{Data: []anthropicModel{}}
		for _, m := range models {
			page.Data = append(page.Data, s.anthropicObject(m))
		}
		if len(models) > 0 {
			page.FirstID, page.LastID = &models[0].ID, &models[len(models)-1].ID
		}
		return page
	}
	list := struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{Object: "list", Data: []modelObject{}}
	for _, m := range models {
		list.Data = append(list.Data, s.object(m))
	}
	return list
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // plain structs: cannot fail
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// maxEchoed bounds how much of a client's own text an error repeats.
const maxEchoed = 128

func echoed(id string) string {
	if len(id) > maxEchoed {
		return strings.ToValidUTF8(id[:maxEchoed], "") + "…"
	}
	return id
}

func unknownModel(id string) *problem {
	return &problem{status: http.StatusNotFound, code: "model_not_found", kind: invalidRequest, param: "model",
		message: "The model " + strconv.Quote(echoed(id)) + " does not exist. GET /v1/models lists the names; they are case-sensitive."}
}
