package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

const (
	// Fingerprint is the system_fingerprint of every answer.
	Fingerprint = "iop-simulator"
	// DefaultModel is listed when the configuration names no models.
	DefaultModel = "iop-simulator"
	// defaultAnswerTokens is the length of an answer that nobody limits.
	defaultAnswerTokens = 16
	// answerLimit bounds an answer, in tokens, whatever a request allows.
	answerLimit = 1 << 20
	// bodyLimit bounds a request, in bytes.
	bodyLimit = 256 << 20
)

// Simulator is the handler. It is safe for concurrent use.
type Simulator struct {
	config *runtimev1.Simulator
	clock  clockwork.Clock
	mux    *http.ServeMux
	// requests counts answers begun, for fail_every.
	requests atomic.Uint64
}

// New returns a simulator; a nil config is the zero one: no delays, no failures.
func New(config *runtimev1.Simulator, clock clockwork.Clock) *Simulator {
	if config == nil {
		config = &runtimev1.Simulator{}
	}
	s := &Simulator{config: config, clock: clock, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, chatForm) })
	s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, completionForm) })
	s.mux.HandleFunc("POST /v1/embeddings", s.embed)
	s.mux.HandleFunc("POST /v1/messages", s.message)
	s.mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	s.mux.HandleFunc("POST /v1/responses", s.respond)
	s.mux.HandleFunc("GET /v1/models", s.listModels)
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "server": Fingerprint})
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, http.StatusNotImplemented, "not_supported_error", fmt.Sprintf("the IOP simulator does not serve %s %s", r.Method, r.URL.Path))
	})
	return s
}

func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// models is what the simulator says it can serve.
func (s *Simulator) models() []string {
	if len(s.config.GetModels()) == 0 {
		return []string{DefaultModel}
	}
	return s.config.GetModels()
}

func (s *Simulator) listModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int    `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	data := []model{}
	for _, id := range s.models() {
		data = append(data, model{id, "model", 0, Fingerprint})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

// accept reads a request and answers those that go no further: malformed ones,
// unknown models (only if the configuration names models), the failing ones of
// fail_mode status. ok is false if the answer is given; breakOff tells that this
// answer must break off half-way.
func (s *Simulator) accept(w http.ResponseWriter, r *http.Request) (req *request, id string, breakOff, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		writeError(w, r, http.StatusRequestEntityTooLarge, "invalid_request_error", "the request body could not be read or is too large")
		return nil, "", false, false
	}
	req = &request{}
	if err := json.Unmarshal(body, req); err != nil {
		writeError(w, r, http.StatusBadRequest, "invalid_request_error", "the request is not valid: "+err.Error())
		return nil, "", false, false
	}
	if len(s.config.GetModels()) > 0 && !slices.Contains(s.config.GetModels(), req.Model) {
		writeError(w, r, http.StatusNotFound, "not_found_error", fmt.Sprintf("the IOP simulator has no model %q", req.Model))
		return nil, "", false, false
	}
	if every := s.config.GetFailEvery(); every > 0 && s.requests.Add(1)%uint64(every) == 0 {
		if s.config.GetFailMode() != "disconnect" {
			writeError(w, r, http.StatusInternalServerError, "server_error", fmt.Sprintf("the IOP simulator was told to fail every request number %d", every))
			return nil, "", false, false
		}
		breakOff = true
	}
	hash := fnv.New64a()
	_, _ = hash.Write(body)
	return req, "sim-" + strconv.FormatUint(hash.Sum64(), 16), breakOff, true
}

// fits answers prompts beyond the context size as llama.cpp does, or Anthropic.
func (s *Simulator) fits(w http.ResponseWriter, r *http.Request, prompt int) bool {
	size := int(s.config.GetContextTokens())
	if size == 0 || prompt <= size {
		return true
	}
	if isMessages(r) {
		writeError(w, r, http.StatusBadRequest, "invalid_request_error", fmt.Sprintf("prompt is too long: %d tokens > %d maximum", prompt, size))
		return false
	}
	writeJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]any{
		"code":            http.StatusBadRequest,
		"message":         fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", prompt, size),
		"type":            "exceed_context_size_error",
		"n_prompt_tokens": prompt,
		"n_ctx":           size,
	}})
	return false
}

// answer is the words of an answer and why it ends. Word n of an answer depends
// on nothing but the prompt and n.
func (s *Simulator) answer(req *request) (words []string, finish string) {
	n, limited := req.limit()
	finish = "length"
	if !limited {
		n, finish = int(s.config.GetAnswerTokens()), "stop"
		if n == 0 {
			n = defaultAnswerTokens
		}
	}
	if size := int(s.config.GetContextTokens()); size > 0 && n > size-req.promptTokens() {
		n, finish = max(size-req.promptTokens(), 0), "length"
	}
	n = min(n, answerLimit)
	words = append([]string{"[IOP", "simulator]", "You", "said:"}, req.lastWords()...)
	for i := 1; len(words) < n; i++ {
		words = append(words, strconv.Itoa(i))
	}
	words = words[:n]
	for i := 1; i < len(words); i++ {
		words[i] = " " + words[i]
	}
	return words, finish
}

// pace waits until the nth token of an answer is due (n from 0), started being
// the moment the answer was asked for. False if the client went first.
func (s *Simulator) pace(ctx context.Context, started time.Time, n int) bool {
	due := time.Duration(s.config.GetFirstTokenMs()) * time.Millisecond
	if rate := s.config.GetTokensPerSecond(); rate > 0 {
		due += time.Duration(float64(n) / rate * float64(time.Second))
	}
	rest := due - s.clock.Since(started)
	if rest <= 0 {
		return ctx.Err() == nil
	}
	timer := s.clock.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.Chan():
		return true
	case <-ctx.Done():
		return false
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("simulator: an answer cannot be written as JSON: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeError answers in the form of the API that was asked.
func writeError(w http.ResponseWriter, r *http.Request, status int, kind, message string) {
	if !isMessages(r) {
		writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "code": status}})
		return
	}
	switch status {
	case http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case http.StatusInternalServerError:
		kind = "api_error"
	}
	writeJSON(w, status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}})
}

func isMessages(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/messages") }
