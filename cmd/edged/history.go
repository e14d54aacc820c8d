package edged

import (
	"slices"
	"strings"
	"time"

	"github.com/iop-dev/iop/services/control"
)

// Source says what asked for a refresh.
type Source string

// The sources.
const (
	SourceStart  Source = "start"
	SourceFile   Source = "file" // it has changed
	SourceSignal Source = "signal"
	SourceAdmin  Source = "admin"
)

// Refresh is one reading of the configuration, accepted or refused.
type Refresh struct {
	At      time.Time
	Source  Source
	By      string // name of the admin token
	Changes []string
	Err     error // why it was refused
}

// What is kept of the past.
const (
	refreshesKept = 16
	changesKept   = 8    // of each refresh
	errorKept     = 4096 // bytes of each error but the last
)

// history is the last refreshes, the newest first.
type history struct {
	revision uint64 // accepted ones, the first included
	last     []control.Refresh
	lastErr  string // of the last refresh, whole
}

// add notes how a refresh ended, and returns the revision in force.
func (h *history) add(r Refresh) uint64 {
	entry := control.Refresh{At: r.At, Source: string(r.Source), By: r.By, ChangeCount: len(r.Changes)}
	entry.Changes = slices.Clone(r.Changes[:min(len(r.Changes), changesKept)])
	h.lastErr = ""
	if r.Err == nil {
		h.revision++
	} else {
		// Names of files need not be UTF-8, and a cut may go through a character; a
		// message of the wire holds neither.
		h.lastErr = strings.ToValidUTF8(r.Err.Error(), "?")
		entry.Error = strings.ToValidUTF8(h.lastErr[:min(len(h.lastErr), errorKept)], "")
	}
	entry.Revision = h.revision
	h.last = slices.Insert(h.last, 0, entry)
	h.last = h.last[:min(len(h.last), refreshesKept)]
	return h.revision
}

// refused is why the last refresh was refused; empty after a good one.
func (h *history) refused() string { return h.lastErr }

// shown is a copy for a snapshot.
func (h *history) shown() []control.Refresh { return slices.Clone(h.last) }
