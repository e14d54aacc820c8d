//go:build !windows

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asked is set by `make e2e-dashboard`, which has set up what a run needs.
const asked = "IOP_E2E_DASHBOARD"

// limit is for all scenarios together: it ends a run that hangs.
const limit = 15 * time.Minute

// passed fails the test if the scenario of that title did not pass. The first one
// that asks runs them all.
func passed(t *testing.T, title string) {
	t.Helper()
	if os.Getenv(asked) == "" {
		t.Skip("needs Chromium and Node.js: make e2e-dashboard")
	}
	results, err := run()
	require.NoError(t, err)
	result, there := results[title]
	require.True(t, there, "no scenario %q; there are %q", title, results)
	require.Equal(t, "expected", result, "what it saw is above, and in the artefacts")
}

// run runs every scenario and has how each ended, by title.
var run = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "iop-dashboard")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	iop, report := filepath.Join(dir, "iop"), filepath.Join(dir, "report.json")
	if out, err := exec.Command("go", "build", "-o", iop, "github.com/iop-dev/iop/cmd/iop").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build iop: %w\n%s", err, out)
	}
	ctx, done := context.WithTimeout(context.Background(), limit)
	defer done()
	c := exec.CommandContext(ctx, "node", filepath.Join("node_modules", "@playwright", "test", "cli.js"), "test")
	c.Env = append(os.Environ(), "IOP="+iop, "IOP_REPORT="+report)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	// A group of its own, so that nothing that it has started outlives it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	var failed *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &failed) {
		return nil, fmt.Errorf("playwright: %w", err)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("playwright has left no report: %w", err)
	}
	var all suite
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("playwright's report: %w", err)
	}
	results := map[string]string{}
	all.collect(results)
	return results, nil
})

// suite is what is read of Playwright's JSON report.
type suite struct {
	Suites []suite `json:"suites"`
	Specs  []struct {
		Title string `json:"title"`
		Tests []struct {
			Status string `json:"status"`
		} `json:"tests"`
	} `json:"specs"`
}

func (s suite) collect(into map[string]string) {
	for _, spec := range s.Specs {
		for _, one := range spec.Tests {
			into[spec.Title] = one.Status
		}
	}
	for _, inner := range s.Suites {
		inner.collect(into)
	}
}

// Every scenario has a test here, by which it is found and counts.
func TestEveryScenarioHasATest(t *testing.T) {
	files, err := filepath.Glob("*.spec.ts")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	scenarios := titles(t, regexp.MustCompile("(?m)^ *test\\([\"`](.+)[\"`], async"), files...)
	for i, title := range scenarios {
		// The one that is made for each colour scheme.
		if before, found := strings.CutSuffix(title, "${colorScheme}"); found {
			scenarios[i] = before + "light"
			scenarios = append(scenarios, before+"dark")
		}
	}
	sort.Strings(scenarios)
	require.Equal(t, scenarios, titles(t, regexp.MustCompile(`passed\(t, "(.+)"\)`), "dashboard_test.go"))
}

func titles(t *testing.T, pattern *regexp.Regexp, files ...string) []string {
	t.Helper()
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
	}
	sort.Strings(all)
	return all
}
