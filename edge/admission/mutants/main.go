// Command mutants plants known faults into the admission core, one at a time, and
// lets the suite find each: the scenarios, the random model, the simulator and the
// broker's tests. A fault that survives is a missing test. Run it by `make
// mutants`; ONLY=name runs one.
//
// No file of the tree is touched: the changed source reaches the compiler as an
// overlay.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// steps is how many simulated steps a fault may survive.
const steps = "1000000"

// suite is one way to find a fault: a command that must fail.
type suite struct {
	name string
	args []string
	// telling finds, in the output, what caught the fault.
	telling *regexp.Regexp
}

// suites are tried in this order.
var suites = []suite{
	{"simulator", []string{"run", "./edge/admission/sim/cmd/admission-sim", "-seed", "1", "-steps", steps}, regexp.MustCompile(`(?i)(invariant[^\n]{0,90})`)},
	{"scenarios", []string{"test", "-count=1", "-run", "^TestScenarios$", "./edge/admission"}, regexp.MustCompile(`--- FAIL: TestScenarios/(\S+)`)},
	{"model", []string{"test", "-count=1", "-run", "^TestRandomCommands$", "./edge/admission", "-rapid.checks=400", "-rapid.steps=200", "-rapid.nofailfile", "-rapid.shrinktime=1s"}, regexp.MustCompile(`Messages:\s+(.+)|Error:\s+(?:Received unexpected error:\s+)?(.+)`)},
	{"broker", []string{"test", "-count=1", "./edge/broker"}, regexp.MustCompile(`--- FAIL: (\S+)`)},
}

func main() {
	only := flag.String("only", "", "plant this fault alone")
	all := flag.Bool("all", false, "go on to every suite, not just to the first that finds the fault")
	flag.Parse()
	if err := run(*only, *all); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, all bool) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// With no fault planted every suite passes, or finding one would prove nothing.
	for _, s := range suites {
		if out, err := play(s, ""); err != nil {
			return fmt.Errorf("%s fails with no fault planted: %w\n%s", s.name, err, out)
		}
	}
	begin, tried := time.Now(), 0
	var survived []string
	for _, m := range mutants {
		if only != "" && m.name != only {
			continue
		}
		tried++
		overlay, err := plant(dir, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		var caught []string
		for _, s := range suites {
			out, err := play(s, overlay)
			if err == nil {
				continue
			}
			if strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") {
				return fmt.Errorf("%s does not compile:\n%s", m.name, out)
			}
			caught = append(caught, s.name+" ("+s.tell(out)+")")
			if !all {
				break
			}
		}
		if len(caught) == 0 {
			survived = append(survived, m.name)
			caught = []string{"SURVIVED: a test is missing"}
		}
		fmt.Printf("%-34s %s\n", m.name, strings.Join(caught, "; "))
	}
	fmt.Printf("%d faults, %d caught, %d survived, in %s\n", tried, tried-len(survived), len(survived), time.Since(begin).Round(time.Second))
	switch {
	case tried == 0:
		return fmt.Errorf("no fault is called %q", only)
	case len(survived) > 0:
		return fmt.Errorf("survived: %s", strings.Join(survived, ", "))
	}
	return nil
}

// plant writes the changed source and the overlay that puts it in place.
func plant(dir string, m mutant) (overlay string, err error) {
	file, err := filepath.Abs(filepath.Join("edge/admission", m.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("what it changes stands %d times in %s: bring it up to date", n, m.file)
	}
	changed := filepath.Join(dir, m.name+".go")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(m.old), []byte(m.new), 1), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, m.name+".json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// play runs a suite; an error means that it failed.
func play(s suite, overlay string) (string, error) {
	args := append([]string{s.args[0], "-overlay=" + overlay}, s.args[1:]...)
	cmd := exec.Command("go", args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	return string(out), err
}

// tell says in a few words what caught a fault.
func (s suite) tell(out string) string {
	for _, m := range s.telling.FindAllStringSubmatch(out, -1) {
		for _, group := range m[1:] {
			if group = strings.TrimSpace(group); group != "" {
				return group
			}
		}
	}
	if strings.Contains(out, "panic: ") {
		_, rest, _ := strings.Cut(out, "panic: ")
		line, _, _ := strings.Cut(rest, "\n")
		return "panic: " + line
	}
	return "failed"
}
