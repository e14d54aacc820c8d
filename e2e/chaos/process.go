//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one iop process; its log goes to a file.
type process struct {
	name     string
	cmd      *exec.Cmd
	log      *os.File
	done     chan struct{} // closed when it has ended
	expected atomic.Bool   // its end is wanted
}

// startProcess starts a program; ended is called when it has ended, before done
// is closed.
func startProcess(name, logPath string, command []string, ended func(*process)) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	p := &process{name: name, log: log, done: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stderr, p.cmd.Stdout = log, log
	p.cmd.Env = append(os.Environ(), "GOTRACEBACK=all", "GORACE=halt_on_error=1")
	// Ctrl-C is for this program, which ends it then.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		_ = log.Close()
		ended(p)
		close(p.done)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends it as a power cut would, and waits for its end.
func (p *process) kill() {
	p.expected.Store(true)
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop asks it to end; false if it does not within limit.
func (p *process) stop(limit time.Duration) bool {
	p.expected.Store(true)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// resources of one process.
type resources struct {
	rss        int64 // KiB
	fds        int
	threads    int
	goroutines int // -1 = not known
}

func (p *process) resources() (resources, error) {
	r := resources{goroutines: -1}
	dir := "/proc/" + strconv.Itoa(p.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return r, fmt.Errorf("read the status of %s: %w", p.name, err)
	}
	for line := range bytes.Lines(status) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			r.rss, _ = strconv.ParseInt(fields[1], 10, 64)
		case "Threads:":
			r.threads, _ = strconv.Atoi(fields[1])
		}
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return r, fmt.Errorf("read the descriptors of %s: %w", p.name, err)
	}
	r.fds = len(fds)
	return r, nil
}

// quit has the Go runtime of a stopped process write its goroutines and end, as
// soon as it goes on. It returns where in its log that will stand.
func (p *process) quit() (offset int64, err error) {
	info, err := os.Stat(p.log.Name())
	if err != nil {
		return 0, err
	}
	p.expected.Store(true)
	p.signal(syscall.SIGQUIT)
	return info.Size(), nil
}

// goroutines waits for the end of a process that was told to quit and returns
// how many goroutines it had, also by the function that created them.
func (p *process) goroutines(offset int64) (total int, by map[string]int, err error) {
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.kill()
		return 0, nil, fmt.Errorf("%s did not end within 30s of SIGQUIT", p.name)
	}
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return 0, nil, err
	}
	by = map[string]int{}
	creator := "main or runtime"
	inside := false
	for line := range strings.Lines(string(text[offset:])) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "goroutine ") && strings.HasSuffix(line, ":") && !strings.HasPrefix(line, "goroutine 0 "):
			total++
			inside, creator = true, "main or runtime"
		case strings.HasPrefix(line, "created by "):
			creator, _, _ = strings.Cut(strings.TrimPrefix(line, "created by "), " in goroutine")
		case line == "" && inside:
			by[creator]++
			inside = false
		}
	}
	if total == 0 {
		return 0, nil, fmt.Errorf("%s wrote no goroutines at SIGQUIT", p.name)
	}
	return total, by, nil
}
