//go:build engines

package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// app is an application in a Node.js process of its own, which it keeps: to
// load a library takes longer than most scenarios.
type app struct {
	mu     sync.Mutex // held while a scenario is played
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer // read only once the process is gone
}

var (
	appsMu sync.Mutex
	apps   = map[string]*app{} // by script and endpoint
)

// nodeApp is the running script for this endpoint.
func nodeApp(ctx context.Context, script string, at endpoint) (*app, error) {
	appsMu.Lock()
	defer appsMu.Unlock()
	key := script + " " + at.baseURL + " " + at.key
	if a := apps[key]; a != nil {
		return a, nil
	}
	a := &app{cmd: exec.CommandContext(ctx, "node", script)}
	a.cmd.Dir = "clients"
	bare := strings.TrimSuffix(at.baseURL, "/v1")
	a.cmd.Env = append(os.Environ(),
		"BASE_URL="+at.baseURL, "API_KEY="+at.key,
		"OPENAI_BASE_URL="+at.baseURL, "OPENAI_API_KEY="+at.key,
		"ANTHROPIC_BASE_URL="+bare, "ANTHROPIC_API_KEY="+at.key, "ANTHROPIC_AUTH_TOKEN="+at.key)
	a.cmd.Stderr = &a.stderr
	var err error
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.out = json.NewDecoder(out)
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	apps[key] = a
	return a, nil
}

// stopApplications ends them all; each ends by itself when it has nothing to read.
func stopApplications() error {
	appsMu.Lock()
	defer appsMu.Unlock()
	var errs []error
	for key, a := range apps {
		errs = append(errs, a.in.Close(), a.cmd.Wait())
		delete(apps, key)
	}
	return errors.Join(errs...)
}

func (a *app) play(scenario string, asked ask, attempted func(status int)) (seen, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := struct {
		Scenario string `json:"scenario"`
		Ask      ask    `json:"ask"`
	}{scenario, asked}
	if err := json.NewEncoder(a.in).Encode(line); err != nil {
		return seen{}, a.broken(err)
	}
	for {
		var said struct {
			Attempt int   `json:"attempt"`
			Result  *seen `json:"result"`
		}
		if err := a.out.Decode(&said); err != nil {
			return seen{}, a.broken(err)
		}
		if said.Result != nil {
			return *said.Result, nil
		}
		if attempted != nil {
			attempted(said.Attempt)
		}
	}
}

// broken ends the process and tells what it said.
func (a *app) broken(err error) error {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
	return fmt.Errorf("%w\n%s", err, a.stderr.Bytes())
}
