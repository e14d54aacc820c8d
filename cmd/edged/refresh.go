package edged

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/events"
	"github.com/iop-dev/iop/edge/state"
	"github.com/iop-dev/iop/services/admin"
	"github.com/iop-dev/iop/services/rpcerr"
)

// ReloadResult is what a refresh did.
type ReloadResult struct {
	Revision uint64
	// Changes are one line each, overrides that the refresh has cleared included.
	Changes []string
	// NeedsRestart is where the file differs from what this process started with.
	NeedsRestart []string
	Warnings     []string
}

// Reload re-reads the configuration because a signal asks for it. See refresh.
func (e *Edge) Reload() (ReloadResult, error) {
	return e.refresh(Refresh{Source: SourceSignal}, e.readFile)
}

// reloadByAdmin is Reload for the admin API, whose client is told of findings in
// the file, and of nothing else that went wrong: that is in the log.
func (e *Edge) reloadByAdmin(by admin.Caller) (admin.Reload, error) {
	r, err := e.refresh(Refresh{Source: SourceAdmin, By: by.Token}, e.readFile)
	e.log.Info("admin call", "token", by.Token, "address", by.Address, "call", "reload", "ok", err == nil)
	return admin.Reload(r), err
}

// check says what a refresh would do, and does nothing.
func (e *Edge) check(by admin.Caller) (admin.Check, error) {
	e.applying.Lock()
	defer e.applying.Unlock()
	if e.path == "" {
		return admin.Check{}, rpcerr.ErrNoConfigFile
	}
	next, err := e.judge(e.readFile())
	e.log.Info("admin call", "token", by.Token, "address", by.Address, "call", "check", "valid", err == nil)
	if err != nil {
		return admin.Check{Errors: strings.Split(err.Error(), "\n")}, nil
	}
	c := admin.Check{Warnings: next.Warnings}
	c.Changes, _ = config.Changes(e.snapshot(), next)
	_, c.NeedsRestart = config.Changes(e.started, next)
	return c, nil
}

// reloadFile is Reload for the watch of the file: it does nothing when the file
// has what the last look found. It reports whether it is done with the change;
// read may say that it is too early, by errUnsettled.
func (e *Edge) reloadFile(read func() ([]byte, error)) (done bool) {
	_, err := e.refresh(Refresh{Source: SourceFile}, func() ([]byte, error) {
		text, err := read()
		if !errors.Is(err, errUnsettled) && lookOf(text, err) == e.lastLook {
			return nil, errUnchanged
		}
		return text, err
	})
	return !errors.Is(err, errUnsettled)
}

var (
	errUnchanged = errors.New("the file has not changed")
	errUnsettled = errors.New("the file is being written")
)

func (e *Edge) readFile() ([]byte, error) { return configs.Read(e.path) }

// lookOf names what was found in the file.
func lookOf(text []byte, err error) string {
	if err != nil {
		return err.Error()
	}
	return config.TextOf(text)
}

// refresh takes a new configuration in two phases: read and judge, which can
// fail and changes nothing; then apply, which cannot. Refreshes come one after
// the other, each with the file as it is when its turn comes.
func (e *Edge) refresh(r Refresh, read func() ([]byte, error)) (ReloadResult, error) {
	e.applying.Lock()
	defer e.applying.Unlock()
	switch {
	case e.path == "":
		return ReloadResult{}, rpcerr.ErrNoConfigFile
	case e.stopping:
		return ReloadResult{}, rpcerr.ErrStopping
	}
	text, err := read()
	if errors.Is(err, errUnchanged) || errors.Is(err, errUnsettled) {
		return ReloadResult{}, err
	}
	e.lastLook = lookOf(text, err)
	next, err := e.judge(text, err)
	if err != nil {
		e.note(r, err)
		e.log.Error("configuration not reloaded", "source", r.Source, "error", err)
		return ReloadResult{}, fmt.Errorf("configuration refused, the former one stays in force:\n%w", err)
	}
	return e.apply(r, next), nil
}

// judge is the first phase.
func (e *Edge) judge(text []byte, err error) (*config.Snapshot, error) {
	if err != nil {
		return nil, err
	}
	next, err := config.Parse(e.path, text)
	if err != nil {
		return nil, err
	}
	return next, config.Refuse(e.path, e.started, e.snapshot(), next)
}

// apply is the second phase.
func (e *Edge) apply(r Refresh, next *config.Snapshot) ReloadResult {
	result := ReloadResult{Warnings: slices.Clone(next.Warnings)}
	result.Changes, _ = config.Changes(e.snapshot(), next)
	stand, cleared := e.overrides.Settle(nodesOf(next), next.Admission)
	for _, c := range cleared {
		result.Changes = append(result.Changes, c.String())
	}
	r.Changes = result.Changes

	result.NeedsRestart = e.adopt(next).needsRestart
	result.Warnings = append(result.Warnings, e.secrets.Apply(next.Credentials)...)
	// The nodes first, so that a gate has grown when the core sends it more; then
	// the core, then the surface: a new model is served as soon as it is known.
	e.link.PushProviders()
	e.mu.Lock()
	e.overrides = stand
	e.broker.Reconfigure(stand.Apply(next.Admission))
	e.mu.Unlock()
	e.surface.Apply(e.settings(next))
	if len(cleared) > 0 || e.lost != nil {
		if err := e.keep(stand); err != nil {
			result.Warnings = append(result.Warnings, "overrides are not kept: "+err.Error())
		}
	}
	result.Revision = e.note(r, nil)
	e.logRefresh(r, result)
	return result
}

// note records how a refresh ended, and returns the revision in force.
func (e *Edge) note(r Refresh, err error) uint64 {
	r.At, r.Err = e.clock.Now(), err
	ev := events.Event{Kind: events.ConfigApplied, At: r.At, Subject: e.path}
	if err != nil {
		ev.Kind, ev.Detail = events.ConfigRefused, err.Error()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(ev)
	return e.history.add(r)
}

func (e *Edge) logRefresh(r Refresh, result ReloadResult) {
	for _, change := range result.Changes {
		e.log.Info("configuration changed", "change", change)
	}
	for _, change := range result.NeedsRestart {
		e.log.Warn("this change takes effect at the next start only", "change", change)
	}
	for _, warning := range result.Warnings {
		e.log.Warn("configuration", "warning", warning)
	}
	e.log.Info("configuration reloaded", "source", r.Source, "revision", result.Revision, "changes", len(result.Changes))
}

func nodesOf(snap *config.Snapshot) []admission.NodeID {
	var ids []admission.NodeID
	for _, n := range snap.Config.GetNodes() {
		ids = append(ids, admission.NodeID(n.GetId()))
	}
	return ids
}

// keep writes the overrides and notes whether they outlast a restart.
func (e *Edge) keep(all state.Overrides) error {
	err := e.store.Save(all, e.clock.Now())
	e.mu.Lock()
	e.lost = err
	e.mu.Unlock()
	if err != nil {
		e.log.Warn("the overrides in force would not be those after a restart", "error", err)
	}
	return err
}
