//go:build engines

package engines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process has after SIGTERM before it is killed.
const stopGrace = 10 * time.Second

// process is a program this test started, with what it has written so far.
type process struct {
	name   string
	cmd    *exec.Cmd
	output *transcript
	exited chan struct{} // closed when the process is gone and its output whole
	err    error         // of Wait; valid after exited
	once   sync.Once
}

// start runs a program in a process group of its own, so that its children (the
// model runner of Ollama) can be ended with it, and writes its output to
// dir/NAME.log too.
func start(dir, name string, env []string, program string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	p := &process{name: name, output: &transcript{}, exited: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = p.cmd.Start()
	_ = writer.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), reader.Close(), log.Close())
	}
	if err := notePID(p.cmd.Process.Pid); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, errors.Join(err, reader.Close(), log.Close())
	}
	go func() {
		defer close(p.exited)
		p.output.fill(io.TeeReader(reader, log))
		p.err = p.cmd.Wait()
		_ = reader.Close()
		_ = log.Close()
	}()
	return p, nil
}

// notePID leaves the process id for run.sh, which ends what a killed test could
// not end itself.
func notePID(pid int) error {
	path := os.Getenv("IOP_ENGINES_PIDS")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note a process id: %w", err)
	}
	_, err = fmt.Fprintln(f, pid)
	return errors.Join(err, f.Close())
}

// gone reports that the process has exited, and how.
func (p *process) gone() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has exited (%v); its last lines:\n%s", p.name, p.cmd.ProcessState, p.output.tail(15))
	default:
		return nil
	}
}

// stop ends the process and its children and waits for it. Idempotent. The error
// is that of a process which did not end in an orderly way.
func (p *process) stop() error {
	var err error
	p.once.Do(func() {
		select {
		case <-p.exited:
			err = p.gone()
			return
		default:
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(stopGrace)
		defer timer.Stop()
		select {
		case <-p.exited:
			if p.err != nil {
				err = fmt.Errorf("%s, asked to stop: %w", p.name, p.err)
			}
		case <-timer.C:
			err = fmt.Errorf("%s did not stop within %v of SIGTERM; its log ends with its goroutines", p.name, stopGrace)
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
			timer.Reset(stopGrace)
			select {
			case <-p.exited:
			case <-timer.C:
			}
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what is left of the group
		<-p.exited
	})
	return err
}

// transcript is what a process has written, line by line.
type transcript struct {
	mu    sync.Mutex
	lines []string
}

func (t *transcript) fill(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			t.mu.Lock()
			t.lines = append(t.lines, strings.TrimRight(line, "\n"))
			t.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// count is the number of lines that contain text.
func (t *transcript) count(text string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, l := range t.lines {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

// last is the last line that contains text, or "".
func (t *transcript) last(text string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.lines) - 1; i >= 0; i-- {
		if strings.Contains(t.lines[i], text) {
			return t.lines[i]
		}
	}
	return ""
}

func (t *transcript) tail(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines[max(0, len(t.lines)-n):], "\n")
}
