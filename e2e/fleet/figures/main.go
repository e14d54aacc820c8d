package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
)

// interval is the Control Plane's default.
const interval = 2 * time.Second

func main() {
	program := flag.String("iop", "bin/iop", "the program")
	edges := flag.Int("edges", 50, "how many Edges")
	nodes := flag.Int("nodes", 20, "nodes of each")
	duration := flag.Duration("duration", time.Minute, "how long to look")
	flag.Parse()
	if err := measure(*program, *edges, *nodes, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "fleet-figures:", err)
		os.Exit(1)
	}
}

func measure(program string, count, nodes int, duration time.Duration) error {
	dir, err := os.MkdirTemp("", "fleet-figures")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kinds := map[string]kind{}
	var edges []*edge
	var file strings.Builder
	fmt.Fprintf(&file, "controlplane: {listen: \"127.0.0.1:0\", state_dir: %q}\nedges:\n", filepath.Join(dir, "state"))
	for i := range count {
		k := well
		switch {
		case i < count/10:
			k = hung
		case i < 2*(count/10):
			k = flaky
		}
		e := newEdge(fmt.Sprintf("edge-%03d", i), k, nodes)
		edges, kinds[e.id] = append(edges, e), k
		fmt.Fprintf(&file, "  - {id: %s, url: %q, token_env: FLEET_FIGURES_TOKEN}\n", e.id, e.server.URL)
	}
	defer func() {
		for _, e := range edges {
			e.server.CloseClientConnections()
			e.server.Close()
		}
	}()
	config := filepath.Join(dir, "controlplane.yaml")
	if err := os.WriteFile(config, []byte(file.String()), 0o600); err != nil {
		return err
	}
	process := exec.Command(program, "controlplane", "-c", config, "--log-level", "info")
	process.Env = append(os.Environ(), "FLEET_FIGURES_TOKEN=simulated")
	logs, err := process.StderrPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	address := addressIn(bufio.NewScanner(logs))
	if address == "" {
		return errors.Join(errors.New("the Control Plane did not start"), process.Wait())
	}
	seen, watchErr := look("http://"+address, kinds, duration)
	peak := peakMemory(process.Process.Pid)
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	asked := time.Now()
	if err := errors.Join(watchErr, process.Wait()); err != nil {
		return err
	}
	fmt.Printf("Edges %d (%d well, %d hung, %d flapping), nodes %d each, looked at for %s, one watcher\n",
		count, count-2*(count/10), count/10, count/10, nodes, duration)
	fmt.Printf("pull of an Edge that is well   p50 %s  p99 %s  max %s\n", at(seen.pulls, 50), at(seen.pulls, 99), at(seen.pulls, 100))
	fmt.Printf("age of an Edge that is well    p50 %s  p99 %s  max %s (two intervals: %s)\n", at(seen.ages, 50), at(seen.ages, 99), at(seen.ages, 100), 2*interval)
	cpu := process.ProcessState.UserTime() + process.ProcessState.SystemTime()
	fmt.Printf("CPU %.1f %% of one core, memory at its peak %s, stopped within %s\n", 100*cpu.Seconds()/duration.Seconds(), peak, time.Since(asked).Round(time.Millisecond))
	if oldest := at(seen.ages, 100); oldest > 2*interval {
		return fmt.Errorf("an Edge that is well was shown %s old", oldest)
	}
	return nil
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// addressIn is where the log says that the Control Plane listens. The rest of the
// log is read and dropped.
func addressIn(log *bufio.Scanner) string {
	for log.Scan() {
		if m := listening.FindStringSubmatch(log.Text()); m != nil {
			go func() {
				for log.Scan() {
					continue
				}
			}()
			return m[1]
		}
	}
	return ""
}

// samples is what was seen of the Edges that are well.
type samples struct{ pulls, ages []time.Duration }

// look watches the fleet and notes each Edge at each update, as a dashboard would
// have it: its age counts from when it was read.
func look(url string, kinds map[string]kind, duration time.Duration) (s samples, err error) {
	ctx, stop := context.WithTimeout(context.Background(), duration)
	defer stop()
	stream, err := fleetv1connect.NewFleetServiceClient(http.DefaultClient, url).WatchFleet(ctx, &fleetv1.WatchFleetRequest{})
	if err != nil {
		return s, err
	}
	defer func() { _ = stream.Close() }()
	begun := time.Now()
	views := map[string]*fleetv1.EdgeView{}
	for stream.Receive() {
		update := stream.Msg()
		for _, v := range update.GetEdges() {
			if views[v.GetId()].GetPulledAt().AsTime() != v.GetPulledAt().AsTime() && kinds[v.GetId()] == well {
				s.pulls = append(s.pulls, time.Duration(v.GetPullMs())*time.Millisecond)
			}
			views[v.GetId()] = v
		}
		if time.Since(begun) < 2*interval {
			continue // each is read once first
		}
		for id, v := range views {
			switch {
			case kinds[id] == hung && v.GetState() != "never":
				return s, fmt.Errorf("%s hangs and is shown %s", id, v.GetState())
			case kinds[id] == well:
				s.ages = append(s.ages, update.GetAt().AsTime().Sub(v.GetPulledAt().AsTime()))
			}
		}
	}
	if ctx.Err() == nil {
		return s, stream.Err()
	}
	return s, nil
}

func at(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)*percent/100].Round(time.Millisecond)
}

var peakLine = regexp.MustCompile(`(?m)^VmHWM:\s*(.*)$`)

// peakMemory is the most memory that a process has had, where the system tells
// (Linux).
func peakMemory(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown"
	}
	if m := peakLine.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return "unknown"
}
