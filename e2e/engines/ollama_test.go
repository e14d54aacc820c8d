//go:build engines

package engines

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
)

const (
	// engineModel is the name under which Ollama has the counting model: the
	// served target of every model group.
	engineModel = "count"
	// engineParallel is how many requests Ollama itself would run at once, more
	// than IOP may let through.
	engineParallel = 4
	// contextTokens is the model's window in Ollama. An endless answer is cut off
	// by Ollama after ten windows, far later than any test looks.
	contextTokens = 8192
)

// ollama is a real Ollama with the counting model and nothing else.
type ollama struct {
	*process
	address string // host:port
}

// startOllama runs the binary with models and home of its own below dir, so that
// nothing of the user's is touched, and creates the model.
func startOllama(ctx context.Context, dir, binary, address string) (*ollama, error) {
	env := []string{
		"OLLAMA_HOST=" + address,
		"OLLAMA_MODELS=" + filepath.Join(dir, "models"),
		"HOME=" + dir, // it keeps a key pair there
		"OLLAMA_DEBUG=1",
		"OLLAMA_KEEP_ALIVE=1h",
		fmt.Sprintf("OLLAMA_NUM_PARALLEL=%d", engineParallel),
	}
	p, err := start(dir, "ollama", env, binary, "serve")
	if err != nil {
		return nil, err
	}
	o := &ollama{process: p, address: address}
	if err := waitFor(ctx, "Ollama to answer", p.gone, func() bool { return answers200(ctx, "http://"+address+"/api/version") }); err != nil {
		return o, err
	}
	return o, o.create(ctx)
}

// create uploads the model and gives it its name and template. The template
// passes the last message on as it is, so that its last number decides the answer.
func (o *ollama) create(ctx context.Context) error {
	var file bytes.Buffer
	if _, err := countmodel.New().WriteTo(&file); err != nil {
		return err
	}
	sum := sha256.Sum256(file.Bytes())
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if err := o.post(ctx, "/api/blobs/"+digest, &file); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"model":    engineModel,
		"files":    map[string]string{"count.gguf": digest},
		"template": "{{ .Prompt }}",
		// One thread a request: the model is tiny and the machine may be busy.
		"parameters": map[string]any{"num_ctx": contextTokens, "num_thread": 1},
		"stream":     false,
	})
	if err != nil {
		return err
	}
	return o.post(ctx, "/api/create", bytes.NewReader(body))
}

func (o *ollama) post(ctx context.Context, path string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.address+path, body)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ollama %s: %w", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode >= 300 || strings.Contains(string(answer), `"error"`)) {
		err = fmt.Errorf("ollama %s: %s: %s", path, res.Status, answer)
	}
	return err
}

// atWork reports, from Ollama's own debug log, that the call with this prompt has got its
// place in the engine and is being answered.
func (o *ollama) atWork(prompt string) bool { return o.output.count(prompt) > 0 }

// idle reports, from the same log, that every request it took up has
// ended: as many ends as starts, and no user of the model left after the last.
func (o *ollama) idle() bool {
	const ended = "after processing request finished event"
	return o.output.count(`msg="chat request"`) == o.output.count("context for request finished") &&
		strings.HasSuffix(o.output.last(ended), "refCount=0")
}
