package openai

import "strings"

// latest is the tag that Ollama's clients leave out, or add, as they like.
const latest = ":latest"

// ollamaModel finds the model that a client of Ollama's API means: the exact id, else the same id with the implied tag written or left out.
// There is no other freedom, so that no model is ever taken for another one. Nil = there is none.
func (s *active) ollamaModel(name string) *Model {
	if m := s.byID[name]; m != nil {
		return m
	}
	bare, implied := strings.CutSuffix(name, latest)
	switch {
	case strings.LastIndexByte(bare, ':') > strings.LastIndexByte(bare, '/'): // it has another tag
		return nil
	case implied:
		return s.byID[bare]
	}
	return s.byID[name+latest]
}

// modelOf finds the model that a request to the endpoint names.
func (s *active) modelOf(e *endpoint, name string) *Model {
	if e.errors == ollama {
		return s.ollamaModel(name)
	}
	return s.byID[name]
}

func unknownModelOf(e *endpoint, name string) *problem {
	if e.errors == ollama {
		return unknownOllamaModel(name)
	}
	return unknownModel(name)
}

func unknownOllamaModel(name string) *problem {
	p := unknownModel(name)
	p.message = "model '" + echoed(name) + "' not found: GET /api/tags lists the names; they are case-sensitive"
	return p
}
