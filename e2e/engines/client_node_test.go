//go:build engines

package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// openaiNode is the official openai package of npm, in a Node.js process of its
// own for each scenario; clients/openai.mjs is the application.
type openaiNode struct{}

func (openaiNode) name() string { return "openai-node" }

func (n openaiNode) ask(ctx context.Context, at endpoint, c call) (answer, error) {
	scenario := "chat"
	if c.Stream {
		scenario = "stream"
	}
	var a answer
	err := n.run(ctx, at, scenario, c, &a)
	return a, err
}

func (n openaiNode) askAll(ctx context.Context, at endpoint, calls []call) ([]answer, error) {
	var all []answer
	err := n.run(ctx, at, "concurrent", map[string]any{"calls": calls}, &all)
	return all, err
}

func (n openaiNode) refused(ctx context.Context, at endpoint, calls []call) ([]refusal, error) {
	var all []refusal
	err := n.run(ctx, at, "refusals", map[string]any{"calls": calls}, &all)
	return all, err
}

func (n openaiNode) models(ctx context.Context, at endpoint) ([]string, error) {
	var list struct {
		IDs []string `json:"ids"`
	}
	err := n.run(ctx, at, "models", struct{}{}, &list)
	return list.IDs, err
}

func (openaiNode) run(ctx context.Context, at endpoint, scenario string, args, result any) error {
	in, err := json.Marshal(args)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "node", "openai.mjs", scenario, string(in))
	cmd.Dir = "clients"
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+at.baseURL, "OPENAI_API_KEY="+at.key)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("node openai.mjs %s: %w\n%s", scenario, err, stderr.Bytes())
	}
	if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
		return fmt.Errorf("node openai.mjs %s: %w in %q", scenario, err, stdout.Bytes())
	}
	return nil
}
