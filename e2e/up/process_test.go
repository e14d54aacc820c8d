//go:build !windows

package up

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	// What the binary is made of, so that the test cache knows when it changes.
	_ "github.com/iop-dev/iop/cmd/edged"
	_ "github.com/iop-dev/iop/cmd/iop/discover"
	_ "github.com/iop-dev/iop/cmd/iop/up"
	_ "github.com/iop-dev/iop/cmd/noded"
)

// patience bounds waits for a process; it never paces a test.
const patience = 60 * time.Second

var binary string

func TestMain(m *testing.M) { os.Exit(build(m)) }

// build makes the binary once for all tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "iop-up")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "iop")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/iop-dev/iop/cmd/iop").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build iop: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// process is a running iop.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output chan string // stdout, line by line; closed at its end
	lines  []string    // of stdout, as far as they were waited for
	stderr *os.File
	ended  chan error
}

// launch starts iop; the test's end kills it.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	// The command's own package cannot be imported: its files are looked at, which
	// the test cache takes note of.
	sources, err := filepath.Glob("../../cmd/iop/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, file := range sources {
		_, err := os.Stat(file)
		require.NoError(t, err)
	}
	p := &process{t: t, cmd: exec.Command(binary, args...), output: make(chan string, 64), ended: make(chan error, 1)}
	p.stderr, err = os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.output <- s.Text()
		}
		close(p.output)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.stderr.Close()
	})
	return p
}

// start runs `iop up` and returns once it has said all that it says at its start.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, append([]string{"up", "--state-dir", filepath.Join(t.TempDir(), "state")}, args...)...)
	deadline := time.After(patience)
	for {
		select {
		case line, more := <-p.output:
			require.True(t, more, "iop up ended: %s", p.errors())
			p.lines = append(p.lines, line)
			if strings.HasPrefix(line, "Ctrl-C") {
				return p
			}
		case <-deadline:
			t.Fatalf("iop up says nothing: %q %s", p.lines, p.errors())
		}
	}
}

func (p *process) text() string { return strings.Join(p.lines, "\n") }

// errors is what the process has written to stderr, its log.
func (p *process) errors() string {
	text, _ := os.ReadFile(p.stderr.Name())
	return string(text)
}

// logs waits until the log has a text n times.
func (p *process) logs(text string, n int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Count(p.errors(), text) >= n }, patience, 5*time.Millisecond,
		"%q × %d in the log", text, n)
}

// stop sends a signal and returns the exit code.
func (p *process) stop(signal os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
	return p.exit()
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the process does not end: %s", p.errors())
	}
	return p.cmd.ProcessState.ExitCode()
}

// The two signals that ask for an orderly stop.
var (
	ctrlC = os.Interrupt
	term  = syscall.SIGTERM
)
