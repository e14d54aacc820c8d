package discover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// errNotThis says that a server does not bear a kind's mark.
var errNotThis = errors.New("not of this kind")

// probe knows one kind of server.
type probe struct {
	// is fails unless the server bears the kind's mark.
	is func(context.Context, site) error
	// describe fills in version, models and capacity.
	describe func(context.Context, site, *Server) error
}

// probes has no entry for OpenAI's identification: nothing marks a server that
// merely speaks the API.
var probes = map[Kind]probe{
	Ollama:   {isOllama, describeOllama},
	LlamaCpp: {isLlamaCpp, describeLlamaCpp},
	VLLM:     {isVLLM, describeVLLM},
	LMStudio: {isLMStudio, describeLMStudio},
	Lemonade: {isLemonade, describeLemonade},
	MLX:      {isMLX, describeOpenAI},
	OpenAI:   {func(context.Context, site) error { return errNotThis }, describeOpenAI},
}

// Ollama greets at its root. Other servers imitate its /api, not the greeting.
func isOllama(ctx context.Context, s site) error {
	r, err := s.get(ctx, "/")
	if err != nil {
		return err
	}
	if r.status != http.StatusOK || strings.TrimSpace(string(r.body)) != "Ollama is running" {
		return errNotThis
	}
	return nil
}

func describeOllama(ctx context.Context, s site, server *Server) error {
	var version struct {
		Version string `json:"version"`
	}
	if _, err := s.json(ctx, "/api/version", &version); err != nil && errors.Is(err, errIsEdge) {
		return err
	}
	server.Version = version.Version
	var tags struct {
		Models []struct {
			Name    string `json:"name"`
			Details struct {
				Family string `json:"family"`
			} `json:"details"`
		} `json:"models"`
	}
	if _, err := s.json(ctx, "/api/tags", &tags); err != nil {
		return err
	}
	for _, m := range tags.Models {
		server.add(m.Name, !strings.Contains(m.Details.Family, "bert"))
	}
	return nil
}

// llama.cpp names itself in the Server header of each reply.
func isLlamaCpp(ctx context.Context, s site) error {
	r, err := s.get(ctx, "/v1/models")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(r.serverHeader(), "llama.cpp") {
		return errNotThis
	}
	return nil
}

// describeLlamaCpp takes the capacity from the slots that the server says it has.
func describeLlamaCpp(ctx context.Context, s site, server *Server) error {
	var props struct {
		TotalSlots int    `json:"total_slots"`
		BuildInfo  string `json:"build_info"`
	}
	// Without /props (an older server, or one behind an API key) there is no
	// capacity to tell, which is no reason to leave the server out.
	if _, err := s.json(ctx, "/props", &props); err == nil {
		server.Capacity = max(props.TotalSlots, 0)
		server.Version = props.BuildInfo
	}
	return describeOpenAI(ctx, s, server)
}

// vLLM owns its models by name.
func isVLLM(ctx context.Context, s site) error {
	list, _, err := listOpenAI(ctx, s, "/v1/models")
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.OwnedBy == "vllm" {
			return nil
		}
	}
	return errNotThis
}

func describeVLLM(ctx context.Context, s site, server *Server) error {
	var version struct {
		Version string `json:"version"`
	}
	if _, err := s.json(ctx, "/version", &version); err == nil {
		server.Version = version.Version
	}
	return describeOpenAI(ctx, s, server)
}

// LM Studio has an API of its own whose models carry a compatibility type.
func isLMStudio(ctx context.Context, s site) error {
	models, err := listLMStudio(ctx, s)
	if err != nil {
		return err
	}
	for _, m := range models {
		if m.CompatibilityType != "" || m.Publisher != "" {
			return nil
		}
	}
	return errNotThis
}

type lmStudioModel struct {
	ID                string `json:"id"`
	Type              string `json:"type"`
	Publisher         string `json:"publisher"`
	CompatibilityType string `json:"compatibility_type"`
}

func listLMStudio(ctx context.Context, s site) ([]lmStudioModel, error) {
	var list struct {
		Data []lmStudioModel `json:"data"`
	}
	_, err := s.json(ctx, "/api/v0/models", &list)
	return list.Data, err
}

func describeLMStudio(ctx context.Context, s site, server *Server) error {
	models, err := listLMStudio(ctx, s)
	if err != nil || len(models) == 0 {
		return describeOpenAI(ctx, s, server)
	}
	for _, m := range models {
		server.add(m.ID, m.Type != "embeddings")
	}
	return nil
}

// Lemonade's health report names the loaded model, null included.
func isLemonade(ctx context.Context, s site) error {
	var health map[string]any
	if _, err := s.json(ctx, "/api/v1/health", &health); err != nil {
		return err
	}
	if _, ok := health["model_loaded"]; !ok {
		return errNotThis
	}
	return nil
}

func describeLemonade(ctx context.Context, s site, server *Server) error {
	var health struct {
		Version string `json:"version"`
	}
	if _, err := s.json(ctx, "/api/v1/health", &health); err == nil {
		server.Version = health.Version
	}
	// Without ?show_all this lists the downloaded models only.
	list, _, err := listOpenAI(ctx, s, "/api/v1/models")
	if err != nil {
		return describeOpenAI(ctx, s, server)
	}
	for _, m := range list {
		server.add(m.ID, true)
	}
	return nil
}

// mlx_lm.server stands on Python's http.server, reports health and lists
// models; nothing else among the known servers does all three.
func isMLX(ctx context.Context, s site) error {
	_, r, err := listOpenAI(ctx, s, "/v1/models")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(r.serverHeader(), "basehttp/") {
		return errNotThis
	}
	var health struct {
		Status string `json:"status"`
	}
	if _, err := s.json(ctx, "/health", &health); err != nil {
		return err
	}
	if health.Status != "ok" {
		return errNotThis
	}
	return nil
}

type openAIModel struct {
	ID      string `json:"id"`
	OwnedBy string `json:"owned_by"`
}

// listOpenAI reads a model list of the OpenAI API. It fails for an IOP Edge's.
func listOpenAI(ctx context.Context, s site, path string) ([]openAIModel, *reply, error) {
	var list struct {
		Object string         `json:"object"`
		Data   *[]openAIModel `json:"data"`
	}
	r, err := s.json(ctx, path, &list)
	if err != nil {
		return nil, r, err
	}
	if list.Data == nil {
		return nil, r, fmt.Errorf("GET %s: the answer has no list of models", path)
	}
	for _, m := range *list.Data {
		if m.OwnedBy == edgeOwner {
			return nil, r, errIsEdge
		}
	}
	return *list.Data, r, nil
}

func describeOpenAI(ctx context.Context, s site, server *Server) error {
	list, _, err := listOpenAI(ctx, s, "/v1/models")
	if err != nil {
		return err
	}
	for _, m := range list {
		server.add(m.ID, true)
	}
	return nil
}

// notChat are parts of the names by which models that answer no chat usually go.
var notChat = []string{"embed", "rerank", "bge-", "whisper", "tts", "kokoro", "stable-diffusion", "sdxl", "flux"}

// add appends a model, once. chat is what the server says or allows for; the
// name may still say otherwise.
func (s *Server) add(id string, chat bool) {
	if id == "" || len(id) > maxModelID {
		return
	}
	for _, m := range s.Models {
		if m.ID == id {
			return
		}
	}
	lower := strings.ToLower(id)
	for _, part := range notChat {
		chat = chat && !strings.Contains(lower, part)
	}
	s.Models = append(s.Models, Model{ID: id, Chat: chat})
}

// maxModelID is the longest model id that the configuration takes, in bytes.
const maxModelID = 256
