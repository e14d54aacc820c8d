//go:build !windows

package link

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait of the rig; it never paces one.
const patience = 60 * time.Second

// Entry is one line of a process's log.
type Entry struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"`
	Address string    `json:"address"`
}

// Process is one iop process.
type Process struct {
	cmd  *exec.Cmd
	name string
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced at each line
}

// startProcess starts iop with arguments and more environment.
func startProcess(binary, name string, env []string, args ...string) (*Process, error) {
	p := &Process{name: name, done: make(chan struct{}), more: make(chan struct{})}
	p.cmd = exec.Command(binary, append(args, "--log-format", "json")...)
	p.cmd.Env = append(os.Environ(), env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		scan := bufio.NewScanner(stderr)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			p.mu.Lock()
			p.lines = append(p.lines, scan.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// Kill ends the process as a power cut would, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Freeze stops the process where it is, and returns when all of it has stopped.
func (p *Process) Freeze() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("freeze %s: %w", p.name, err)
		case !status.Stopped():
			return fmt.Errorf("freeze %s: it has ended", p.name)
		default:
			return nil
		}
	}
}

// Log is all that the process has logged.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// Count is how often the log has a message.
func (p *Process) Count(message string) int { return len(p.entries(message)) }

func (p *Process) entries(message string) (found []Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		var e Entry
		if json.Unmarshal([]byte(line), &e) == nil && e.Message == message {
			found = append(found, e)
		}
	}
	return found
}

// Await waits until the log has a message for the nth time, and returns it.
func (p *Process) Await(message string, nth int) (Entry, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		p.mu.Lock()
		more := p.more
		p.mu.Unlock()
		if found := p.entries(message); len(found) >= nth {
			return found[nth-1], nil
		}
		select {
		case <-more:
		case <-p.done:
			return Entry{}, fmt.Errorf("%s ended before it said %q:\n%s", p.name, message, p.Log())
		case <-limit.C:
			return Entry{}, fmt.Errorf("%s never said %q for the %dth time:\n%s", p.name, message, nth, p.Log())
		}
	}
}

// Resident is the process's resident memory in bytes.
func (p *Process) Resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory is read from /proc: %w", err)
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			var kib int64
			_, err := fmt.Sscan(string(rest), &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no VmRSS in its status", p.name)
}

// Files is how many file descriptors the process has open.
func (p *Process) Files() (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("open files are counted in /proc: %w", err)
	}
	return len(entries), nil
}

// Goroutines ends the process with SIGQUIT and counts the stacks that the Go
// runtime prints on its way out, by the function that each has begun with.
func (p *Process) Goroutines() (total int, by map[string]int, err error) {
	if err := p.Signal(syscall.SIGQUIT); err != nil {
		return 0, nil, err
	}
	<-p.done
	by = map[string]int{}
	log := p.Log()
	for _, stack := range strings.Split(log, "\n\n") {
		_, stack, found := strings.Cut("\n"+stack, "\ngoroutine ")
		if !found || strings.HasPrefix(stack, "0 ") { // 0 is the scheduler
			continue
		}
		total++
		first := "main"
		if _, created, ok := strings.Cut(stack, "created by "); ok {
			first, _, _ = strings.Cut(created, " in goroutine")
		}
		by[first]++
	}
	if total == 0 {
		return 0, nil, fmt.Errorf("%s printed no goroutine as it ended:\n%s", p.name, log)
	}
	return total, by, nil
}

// CPU is the processor time that the process has used.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("processor time is read from /proc: %w", err)
	}
	// Behind the command's name, which may hold anything; utime and stime are the
	// 14th and 15th field of all, in ticks of 10 ms (proc(5), USER_HZ).
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: its stat cannot be read", p.name)
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	const tick = 10 * time.Millisecond
	return time.Duration(user+system) * tick, nil
}
