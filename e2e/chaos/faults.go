//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// injector carries the schedule out.
type injector struct {
	site     *site
	injected *tally
	skipped  *tally
	running  sync.WaitGroup

	stuck map[string]*sync.Mutex // one fault of a provider at a time; immutable
}

func newInjector(s *site) *injector {
	i := &injector{site: s, injected: newTally(), skipped: newTally(), stuck: map[string]*sync.Mutex{}}
	for _, p := range providers {
		i.stuck[p.key()] = &sync.Mutex{}
	}
	return i
}

// run injects every fault at its time and returns when the last has ended.
func (i *injector) run(plan []fault) {
	began := time.Now()
	for _, f := range plan {
		time.Sleep(time.Until(began.Add(f.at)))
		i.running.Go(func() { i.inject(f) })
	}
	i.running.Wait()
}

// inject carries one fault out, unless its target is busy with another.
func (i *injector) inject(f fault) {
	turn := i.turn(f)
	if !turn.TryLock() {
		i.skipped.add(string(f.class))
		return
	}
	defer turn.Unlock()
	i.site.logf("fault %s", f)
	i.injected.add(string(f.class))
	if err := i.act(f); err != nil {
		i.site.verdict.breach("fault %q on %q: %v", f.class, f.target, err)
	}
	i.site.logf("ended %s", f)
}

func (i *injector) turn(f fault) *sync.Mutex {
	if n := i.site.nodes[f.target]; n != nil {
		return &n.turn
	}
	switch f.class {
	case edgeKill, edgeStop, confCapacity, confEnabled, confTimeout, confRemove, confInvalid:
		return &i.site.edgeTurn
	}
	return i.stuck[f.target]
}

func (i *injector) act(f fault) error {
	switch s := i.site; f.class {
	case nodeKill, nodeStop, freezeShort, freezeLong:
		return i.onNode(f, s.nodes[f.target])
	case linkReset, linkHoleShort, linkHoleLong, linkDelay, linkThrottle:
		return i.onLink(f, s.nodes[f.target])
	case edgeKill, edgeStop:
		return i.onEdge(f)
	case confInvalid:
		return s.refuseFile()
	case confCapacity:
		return s.refresh(f.target, func(l *live) { l.capacity = f.value })
	case confTimeout:
		return s.refresh(f.target, func(l *live) { l.timeout = time.Duration(f.value) * time.Millisecond })
	case confEnabled:
		return i.forAWhile(f, func(l *live, yes bool) { l.disabled = yes })
	case confRemove:
		return i.forAWhile(f, func(l *live, yes bool) { l.gone = yes })
	default:
		return i.onProvider(f, s.fakes[f.target])
	}
}

func (i *injector) onNode(f fault, n *node) error {
	defer n.bother()()
	p := n.process()
	switch f.class {
	case freezeShort, freezeLong:
		p.signal(syscall.SIGSTOP)
		time.Sleep(f.lasts)
		p.signal(syscall.SIGCONT)
		return nil
	case nodeKill:
		p.kill()
	case nodeStop:
		if !p.stop(45 * time.Second) {
			p.kill()
			return fmt.Errorf("%s did not end within 45s of SIGTERM (its grace is 30s)", n.id)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("%s exited with %d after SIGTERM, 0 is promised", n.id, code)
		}
	}
	time.Sleep(f.lasts)
	return i.site.startNode(n)
}

func (i *injector) onLink(f fault, n *node) error {
	defer n.bother()()
	switch f.class {
	case linkReset:
		n.link.resetAll()
	case linkDelay:
		n.link.impair(time.Duration(f.value)*time.Millisecond, 0)
		time.Sleep(f.lasts)
		n.link.impair(0, 0)
	case linkThrottle:
		n.link.impair(0, f.value<<10)
		time.Sleep(f.lasts)
		n.link.impair(0, 0)
	default:
		if err := n.link.hole(); err != nil {
			return err
		}
		time.Sleep(f.lasts)
		return n.link.fill()
	}
	return nil
}

func (i *injector) onEdge(f fault) error {
	s := i.site
	for _, n := range s.nodes {
		defer n.bother()()
	}
	defer s.outages.begin(f.class == edgeStop)()
	p := s.edge.Load()
	if f.class == edgeKill {
		p.kill()
	} else if !p.stop(45 * time.Second) {
		p.kill()
		return fmt.Errorf("the edge did not end within 45s of SIGTERM (its grace is 30s)")
	} else if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the edge exited with %d after SIGTERM, 0 is promised", code)
	}
	s.renewClients()
	time.Sleep(f.lasts)
	return s.startEdge()
}

func (i *injector) onProvider(f fault, p *fake) error {
	if f.class == provCrash {
		p.crash()
		time.Sleep(f.lasts)
		return p.revive()
	}
	p.setMode(map[class]mode{
		provHang: hanging, provDeaf: deafHanging, provClose: closing, provReset: resetting, provError: failing, provSlow: slow,
	}[f.class])
	time.Sleep(f.lasts)
	p.setMode(healthy)
	return nil
}

// forAWhile changes a provider's configuration and changes it back. The file is
// free for others in between.
func (i *injector) forAWhile(f fault, change func(*live, bool)) error {
	s := i.site
	if err := s.refresh(f.target, func(l *live) { change(l, true) }); err != nil {
		return err
	}
	i.running.Go(func() {
		time.Sleep(f.lasts)
		s.edgeTurn.Lock()
		defer s.edgeTurn.Unlock()
		if err := s.refresh(f.target, func(l *live) { change(l, false) }); err != nil {
			s.verdict.breach("end of fault %q on %q: %v", f.class, f.target, err)
		}
	})
	return nil
}

// removed reports whether the Edge may not have known a model at some moment since
// then.
func (s *site) removed(since time.Time) bool {
	s.confMu.Lock()
	defer s.confMu.Unlock()
	return s.missing > 0 || !s.lastGone.Before(since)
}

// refresh changes the file, has the Edge read it, and waits until that is
// confirmed. The caller holds edgeTurn.
func (s *site) refresh(key string, change func(*live)) error {
	s.confMu.Lock()
	c := s.conf[key]
	before := c
	change(&c)
	s.conf[key] = c
	if c.gone && !before.gone {
		s.missing++
	}
	s.confMu.Unlock()
	f := s.fakes[key]
	f.mu.Lock()
	version := f.limit.set(c.effective())
	f.mu.Unlock()
	if err := s.writeEdgeYAML(); err != nil {
		return err
	}
	if err := s.reload(func(was, is *controlv1.EdgeNodeSnapshot) bool {
		return is.GetConfigRevision() > was.GetConfigRevision()
	}); err != nil {
		return err
	}
	if before.gone && !c.gone {
		s.confMu.Lock()
		s.missing--
		s.lastGone = time.Now()
		s.confMu.Unlock()
	}
	go s.settle(f, version, time.Now())
	return nil
}

// settling is how long a Node in peace may take to hear of a lower capacity, or
// to drop what it had of a session in which it did not: the heartbeat timeout, and
// what may still stand at its gate; doubled.
const settling = 2 * (heartbeatTimeout + gateWait)

// settle lets a lowered limit count once the provider's Node must know it.
func (s *site) settle(f *fake, version int, confirmed time.Time) {
	n := s.nodes[f.spec.node]
	for n.calmFor() < settling+s.lag.now() || time.Since(confirmed) < settling+s.lag.now() {
		select {
		case <-f.stopped:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit.settle(version)
}

// reload sends SIGHUP and waits until a snapshot shows its outcome.
func (s *site) reload(happened func(was, is *controlv1.EdgeNodeSnapshot) bool) error {
	was, err := s.snapshot(context.Background())
	if err != nil {
		return fmt.Errorf("snapshot before a refresh: %w", err)
	}
	s.edge.Load().signal(syscall.SIGHUP)
	return s.until(20*time.Second, func(is *controlv1.EdgeNodeSnapshot) string {
		if happened(was, is) {
			return ""
		}
		return fmt.Sprintf("the outcome of a refresh (revision %d, error %.80q)", is.GetConfigRevision(), is.GetLastRefreshError())
	})
}

// refuseFile has the Edge read a file that it must refuse.
func (s *site) refuseFile() error {
	good, err := os.ReadFile(s.edgeYAML)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.edgeYAML, append(good, "no_such_key: 1\n"...), 0o600); err != nil {
		return err
	}
	err = s.reload(func(was, is *controlv1.EdgeNodeSnapshot) bool {
		return is.GetLastRefreshError() != "" && is.GetConfigRevision() == was.GetConfigRevision()
	})
	if writeErr := os.WriteFile(s.edgeYAML, good, 0o600); writeErr != nil {
		return writeErr
	}
	if err != nil {
		return err
	}
	return s.reload(func(_, is *controlv1.EdgeNodeSnapshot) bool { return is.GetLastRefreshError() == "" })
}
