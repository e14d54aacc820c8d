package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// Snapshot is one valid configuration. Nobody changes it after Parse.
type Snapshot struct {
	// Config is the file with every default filled in. Addresses that were left
	// out equal edge.listen; base_url has no trailing slash and no /v1; hashes
	// are lower-case; a route's max_queue and queue_timeout_ms are the effective
	// ones, in which 0 means that nobody waits.
	Config *configv1.EdgeConfig
	// Admission is what the core is told.
	Admission admission.Config
	// Credentials is who may call.
	Credentials auth.Credentials
	// Models are the external ids: models[] and then routes, in their order.
	Models []Model
	// Warnings are what works but is probably not meant, or will go away; each
	// with its place in the file.
	Warnings []string
	// Text names the text of the file, as [TextOf] does.
	Text string

	doc     *configs.Document
	origins *configs.Origins
	absent  configs.Problems // see ParseElsewhere
}

// Model is an external model id.
type Model struct {
	ID    string
	Group admission.GroupKey
	// ContextWindow is in tokens; 0 = not stated. Routes state none.
	ContextWindow int
	// Route is true for openai.model_routes[].
	Route bool
}

// Load reads and judges a file. An error about its content is
// [configs.Problems].
func Load(path string) (*Snapshot, error) {
	text, err := configs.Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse judges the text of a file; path is its name in problems. Of other files
// it reads only the secrets that this one points to. An error is always
// [configs.Problems]: all that is wrong, at once.
func Parse(path string, text []byte) (*Snapshot, error) { return parse(path, text, false) }

// ParseElsewhere is Parse on a machine that the file may not be meant for: secrets
// that it points to and that are not here are findings of CheckFiles. What it
// returns is for looking at, not for serving.
func ParseElsewhere(path string, text []byte) (*Snapshot, error) { return parse(path, text, true) }

func parse(path string, text []byte, elsewhere bool) (*Snapshot, error) {
	cfg := &configv1.EdgeConfig{}
	doc, problems := configs.Decode(path, text, cfg)
	if !doc.Readable {
		return nil, problems.Err()
	}
	r := &rules{doc: doc, cfg: cfg, problems: problems, origins: doc.Origins(), elsewhere: elsewhere}
	r.all()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	r.fillDefaults()
	return &Snapshot{
		Config:      cfg,
		Admission:   admissionOf(cfg),
		Credentials: credentialsOf(cfg),
		Models:      modelsOf(cfg),
		Warnings:    r.warnings,
		Text:        TextOf(text),
		doc:         doc,
		origins:     r.origins,
		absent:      r.absent,
	}, nil
}

// TextOf names a file's text: 12 hexadecimal digits of its SHA-256.
func TextOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// CheckFiles judges the files that the configuration names: the certificate and
// its key, and secrets that [ParseElsewhere] has not found.
func (s *Snapshot) CheckFiles() configs.FileProblems {
	problems := configs.FileProblems{Missing: slices.Clone(s.absent)}
	if files := s.Config.GetEdge().GetTls(); files != nil {
		problems.AddKeyPair(s.doc, "edge.tls.cert_file", files.GetCertFile(), "edge.tls.key_file", files.GetKeyFile())
	}
	return problems
}

func modelsOf(cfg *configv1.EdgeConfig) []Model {
	var models []Model
	for _, m := range cfg.GetModels() {
		models = append(models, Model{ID: m.GetId(), Group: admission.GroupKey(m.GetId()), ContextWindow: int(m.GetContextWindowTokens())})
	}
	for _, route := range cfg.GetOpenai().GetModelRoutes() {
		models = append(models, Model{ID: route.GetModel(), Group: admission.GroupKey(route.GetModel()), Route: true})
	}
	return models
}
