package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/dispatch"
)

// ollamaDetails are fields that strict clients need, of which IOP knows nothing but the window: it sees no model files.
type ollamaDetails struct {
	ParentModel       string   `json:"parent_model"`
	Format            string   `json:"format"`
	Family            string   `json:"family"`
	Families          []string `json:"families"`
	ParameterSize     string   `json:"parameter_size"`
	QuantizationLevel string   `json:"quantization_level"`
	ContextLength     int      `json:"context_length,omitempty"`
}

func detailsOf(m *Model) ollamaDetails {
	return ollamaDetails{Families: []string{}, ContextLength: m.ContextWindow}
}

// ollamaDigest tells one entry of the catalogue from another. It is no hash of a file, but has that length: Ollama's own client cuts it.
func ollamaDigest(m *Model) string {
	sum := sha256.Sum256([]byte("iop model\x00" + m.ID))
	return hex.EncodeToString(sum[:])
}

// ollamaTags lists what GET /v1/models lists: the names are the ids, with no tag added.
func ollamaTags(_ *Handler, w http.ResponseWriter, r *http.Request, s *active, key *auth.APIKey) *problem {
	type entry struct {
		Name       string        `json:"name"`
		Model      string        `json:"model"`
		ModifiedAt time.Time     `json:"modified_at"`
		Size       int64         `json:"size"`
		Digest     string        `json:"digest"`
		Details    ollamaDetails `json:"details"`
	}
	list := []entry{}
	for i := range s.Models {
		if m := &s.Models[i]; key == nil || key.Allows(m.ID) {
			list = append(list, entry{m.ID, m.ID, s.Created.UTC(), 0, ollamaDigest(m), detailsOf(m)})
		}
	}
	writeJSON(w, r, http.StatusOK, struct {
		Models []entry `json:"models"`
	}{list})
	return nil
}

// ollamaRunning lists the models that have a request at a provider. Which models a provider keeps loaded beyond that, where and for how
// long, IOP does not know, and does not say.
func ollamaRunning(_ *Handler, w http.ResponseWriter, r *http.Request, s *active, key *auth.APIKey) *problem {
	type entry struct {
		Name          string        `json:"name"`
		Model         string        `json:"model"`
		Size          int64         `json:"size"`
		Digest        string        `json:"digest"`
		Details       ollamaDetails `json:"details"`
		SizeVRAM      int64         `json:"size_vram"`
		ContextLength int           `json:"context_length,omitempty"`
	}
	runs := map[admission.GroupKey]bool{}
	if s.Core != nil {
		for _, l := range s.Core.Snapshot().Leases {
			if l.HandedOff {
				runs[l.Group] = true
			}
		}
	}
	list := []entry{}
	for i := range s.Models {
		if m := &s.Models[i]; runs[m.Group] && (key == nil || key.Allows(m.ID)) {
			list = append(list, entry{m.ID, m.ID, 0, ollamaDigest(m), detailsOf(m), 0, m.ContextWindow})
		}
	}
	writeJSON(w, r, http.StatusOK, struct {
		Models []entry `json:"models"`
	}{list})
	return nil
}

// unknownArchitecture stands where clients look for the prefix of a model's context length.
const unknownArchitecture = "unknown"

// ollamaShow tells of one model what the configuration says. Capabilities are none known: which of its candidates' models can call tools
// or see is theirs to answer.
func ollamaShow(_ *Handler, w http.ResponseWriter, r *http.Request, s *active, key *auth.APIKey) *problem {
	body, err := readBody(w, r, s, ollamaJSON)
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, dispatch.ErrStopped):
		return drainingProblem(0)
	case err != nil:
		panic(http.ErrAbortHandler)
	}
	var asked struct {
		Model string `json:"model"`
		Name  string `json:"name"` // of older clients
	}
	if json.Unmarshal(body, &asked) != nil {
		return &problem{status: http.StatusBadRequest, code: "invalid_request", kind: invalidRequest,
			message: `The request body must be a JSON object with "model", a string.`}
	}
	name := asked.Model
	if name == "" {
		name = asked.Name
	}
	if name == "" {
		return &problem{status: http.StatusBadRequest, code: "invalid_request", kind: invalidRequest, param: "model",
			message: `The request body has no "model". Name one of the models that GET /api/tags lists.`}
	}
	m := s.ollamaModel(name)
	if m == nil || key != nil && !key.Allows(m.ID) {
		return unknownOllamaModel(name)
	}
	// Ollama's own "show" ends in a panic without the two counts; 0 = not known.
	info := map[string]any{
		"general.architecture": unknownArchitecture, "general.basename": m.ID, "general.parameter_count": 0, unknownArchitecture + ".embedding_length": 0,
	}
	if m.ContextWindow > 0 {
		info[unknownArchitecture+".context_length"] = m.ContextWindow
	}
	writeJSON(w, r, http.StatusOK, struct {
		Details      ollamaDetails  `json:"details"`
		ModelInfo    map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		ModifiedAt   time.Time      `json:"modified_at"`
	}{detailsOf(m), info, []string{}, s.Created.UTC()})
	return nil
}
