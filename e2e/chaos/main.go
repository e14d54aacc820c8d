//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

func main() {
	duration := flag.Duration("duration", time.Minute, "how long faults are injected")
	seed := flag.Uint64("seed", 0, "seed of the schedule; 0 = a new one")
	binary := flag.String("binary", "bin/iop", "the iop to run")
	clients := flag.Int("clients", 32, "how many clients ask at once")
	keep := flag.Bool("keep", false, "keep the folder with logs even if all is well")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1e9) + 1
	}
	path, err := filepath.Abs(*binary)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "iop-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	fmt.Printf("chaos: seed %d, %s, %d clients, %s; logs in %s\n", *seed, *duration, *clients, path, dir)
	v := newVerdict(os.Stdout)
	if err := torment(v, dir, path, *seed, *duration, *clients); err != nil {
		v.breach("%v", err)
	}
	if n := v.count(); n > 0 {
		fmt.Printf("chaos: %d breaches; replay the schedule with SEED=%d; configuration and logs are kept in %s\n", n, *seed, dir)
		os.Exit(1)
	}
	if *keep {
		fmt.Printf("logs are in %s\n", dir)
	} else {
		_ = os.RemoveAll(dir)
	}
	fmt.Println("chaos: ok")
}

// torment is a whole run; an error is a breach, too.
func torment(v *verdict, dir, binary string, seed uint64, duration time.Duration, clients int) (err error) {
	l, stopLag := &lag{}, make(chan struct{})
	go l.watch(stopLag)
	defer close(stopLag)
	s, err := newSite(dir, binary, v, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// Whoever interrupts this program must not find its processes and its network
	// namespace left behind.
	ctx, done := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer done()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
			_ = s.close()
			os.Exit(130)
		case <-over:
		}
	}()
	if s.space == nil {
		fmt.Printf("no network namespace (%s): black holes are made by the proxy alone\n", s.noSpace)
	}

	before, err := s.baseline(seed, clients)
	if err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	if err := s.start(); err != nil {
		return err
	}
	inject, load := newInjector(s), newLoad(s)
	stopWatch, seen := make(chan struct{}), make(chan int, 1)
	go func() { seen <- s.watch(stopWatch) }()
	load.start("c", seed, clients)
	began := time.Now()
	inject.run(schedule(seed, duration))
	tormented := time.Since(began)
	s.logf("faults have ended")
	// What the last fault has broken may show only now.
	time.Sleep(2 * heartbeatTimeout)

	if err := s.allConnected(30 * time.Second); err != nil {
		v.breach("the node set did not recover: %v", err)
	}
	if err := s.restoreConfig(); err != nil {
		v.breach("the configuration cannot be restored: %v", err)
	}
	load.stop()
	s.everyProviderServes()
	close(stopWatch)
	snapshots := <-seen
	s.judgeCounters()
	after, creators := s.aftermath(before)

	s.report(inject, load, tormented, snapshots)
	s.reportResources(before, after, creators)
	s.judgeLogs()
	return nil
}

// baseline runs load without faults, measures every process and ends it.
func (s *site) baseline(seed uint64, clients int) (map[string]resources, error) {
	if err := s.start(); err != nil {
		return nil, err
	}
	load := newLoad(s)
	load.start("w", seed+1, clients)
	time.Sleep(4 * time.Second)
	load.stop()
	for _, name := range load.outcomes.names(false) {
		switch name {
		case "200 complete", "aborted by the client", "429 queue_full", "503 queue_timeout":
		default:
			// Short limits on a machine that is short of time: no breach, but no silence.
			fmt.Printf("before any fault %d requests ended with %q\n", load.outcomes.of(name), name)
		}
	}
	if err := s.idle(30 * time.Second); err != nil {
		return nil, err
	}
	s.clients.Load().CloseIdleConnections()
	time.Sleep(5 * time.Second) // the Node's idle connections to providers end after 4 s
	before, _, err := s.measure()
	return before, err
}

// measure reads the resources of every process and ends it for its goroutines.
func (s *site) measure() (map[string]resources, map[string]map[string]int, error) {
	all, creators := map[string]resources{}, map[string]map[string]int{}
	list := s.processes()
	for _, p := range list {
		r, err := p.resources()
		if err != nil {
			return nil, nil, err
		}
		all[p.name] = r
	}
	// The dumps must show the processes at rest: none may see another one's end first.
	for _, p := range list {
		p.signal(syscall.SIGSTOP)
	}
	offsets := make([]int64, len(list))
	for i, p := range list {
		var err error
		if offsets[i], err = p.quit(); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range list {
		p.signal(syscall.SIGCONT)
	}
	for i, p := range list {
		n, by, err := p.goroutines(offsets[i])
		if err != nil {
			return nil, nil, err
		}
		r := all[p.name]
		r.goroutines = n
		all[p.name], creators[p.name] = r, by
	}
	return all, creators, nil
}

func (s *site) processes() []*process {
	list := []*process{s.edge.Load()}
	for _, id := range nodeIDs {
		list = append(list, s.nodes[id].process())
	}
	return list
}

// restoreConfig makes the configuration what it was at first.
func (s *site) restoreConfig() error {
	s.edgeTurn.Lock()
	defer s.edgeTurn.Unlock()
	for _, p := range providers {
		if err := s.refresh(p.key(), func(l *live) { *l = live{capacity: p.capacity, timeout: requestTimeout} }); err != nil {
			return err
		}
	}
	return nil
}

// everyProviderServes asks until each provider has given a whole answer.
func (s *site) everyProviderServes() {
	had := map[string]int{}
	for key, f := range s.fakes {
		_, had[key], _, _ = f.counts()
	}
	load := newLoad(s)
	missing := func() (keys []string) {
		for key, f := range s.fakes {
			if _, total, _, _ := f.counts(); total == had[key] {
				keys = append(keys, key)
			}
		}
		return keys
	}
	deadline := time.Now().Add(time.Minute)
	for round := 0; len(missing()) > 0 && time.Now().Before(deadline); round++ {
		for i := range 12 {
			load.clients.Go(func() {
				r := load.one(call{model: modelIDs[i%len(modelIDs)], stream: i%2 == 0, behaviour: plain,
					order: order{ID: fmt.Sprintf("f-%d-%d", round, i), Parts: 3, PauseMs: 10}})
				if r.class != "200 complete" {
					s.verdict.note(fmt.Sprintf("requests after all faults that ended with %q", r.class))
				}
			})
		}
		load.clients.Wait()
	}
	if keys := missing(); len(keys) > 0 {
		slices.Sort(keys)
		s.verdict.breach("after all faults these providers serve nothing: %s", strings.Join(keys, ", "))
	}
}

// judgeCounters asserts that nothing is held any more.
func (s *site) judgeCounters() {
	var last *controlv1.EdgeNodeSnapshot
	if err := s.until(30*time.Second, func(snap *controlv1.EdgeNodeSnapshot) string {
		last = snap
		return held(snap)
	}); err != nil {
		s.verdict.breach("in the end: %v", err)
	}
	for _, bad := range judge(last) {
		s.verdict.breach("the last snapshot: %s", bad)
	}
	for key, f := range s.fakes {
		if running, _, _, _ := f.counts(); running != 0 {
			s.verdict.breach("in the end provider %s runs %d requests of nobody", key, running)
		}
	}
}

// held names something that is not free; "" when everything is.
func held(snap *controlv1.EdgeNodeSnapshot) string {
	if c := snap.GetCounters(); c.GetGranted() != c.GetReleased() || snap.GetInFlightTotal() != 0 || snap.GetQueueTotal() != 0 {
		return fmt.Sprintf("all counters 0: %d granted, %d released, %d in flight, %d wait", c.GetGranted(), c.GetReleased(), snap.GetInFlightTotal(), snap.GetQueueTotal())
	}
	for _, n := range snap.GetNodes() {
		for _, p := range n.GetProviders() {
			if p.GetInFlight()+p.GetLongInFlight()+p.GetQueued()+p.GetLongQueued() != 0 || p.GetStatus() != "available" {
				return fmt.Sprintf("%s/%s free: %v", n.GetId(), p.GetId(), p)
			}
		}
	}
	return ""
}

// aftermath waits until descriptors are back, then measures.
func (s *site) aftermath(before map[string]resources) (map[string]resources, map[string]map[string]int) {
	s.clients.Load().CloseIdleConnections()
	time.Sleep(5 * time.Second)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
		high := false
		for _, p := range s.processes() {
			r, err := p.resources()
			high = high || err == nil && r.fds > before[p.name].fds+fdMargin
		}
		if !high {
			break
		}
		s.clients.Load().CloseIdleConnections()
	}
	after, creators, err := s.measure()
	if err != nil {
		s.verdict.breach("measure: %v", err)
	}
	return after, creators
}

// judgeLogs looks for what no log may have.
func (s *site) judgeLogs() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			s.verdict.breach("read a log: %v", err)
			continue
		}
		for _, trouble := range []string{"panic:", "fatal error:", "DATA RACE", "concurrent map", apiKey, readToken, nodeToken} {
			if i := strings.Index(string(text), trouble); i >= 0 {
				s.verdict.breach("%s has %q: %.300q", path, trouble, text[max(0, i-100):])
			}
		}
	}
}

// sortedKeys of a map whose keys are names.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
