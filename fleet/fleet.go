package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// ErrNotOffered says that an Edge is too old for what it was asked.
var ErrNotOffered = errors.New("this Edge does not offer it")

// Reader reads one Edge. Calls end when ctx does; two may run at once.
type Reader interface {
	// Snapshot is the present state.
	Snapshot(ctx context.Context) (*controlv1.EdgeNodeSnapshot, error)
	// History is the last hour in points of seconds, the oldest first; or
	// [ErrNotOffered].
	History(ctx context.Context) ([]*controlv1.HistoryPoint, error)
}

// Edge is one Edge to read.
type Edge struct {
	ID     string
	Reader Reader
}

// Options say what a fleet is made of.
type Options struct {
	Edges []Edge
	// Interval is how often each Edge is read, Timeout the longest a read may take,
	// StaleAfter the age from which a snapshot is stale.
	Interval, Timeout, StaleAfter time.Duration
	Store                         Store
	Clock                         clockwork.Clock
	Log                           *slog.Logger
	// Software is the Control Plane's version; an Edge of another one is noticed.
	Software string
	// Chance is a number from 0 up to 1 for jitter; nil = a random one.
	Chance func() float64
}

// Fleet is all configured Edges. It is safe for concurrent use.
type Fleet struct {
	o     Options
	edges []*edge
	byID  map[string]*edge

	summing summing

	storage sync.Mutex
	trouble string // why points could not be kept last; empty if they could
}

// New returns a fleet of which nothing is known yet; Run reads it.
func New(o Options) *Fleet {
	if o.Chance == nil {
		o.Chance = rand.Float64
	}
	f := &Fleet{o: o, byID: map[string]*edge{}, summing: summing{turn: make(chan struct{}, 1)}}
	for _, e := range o.Edges {
		at := &edge{id: e.ID, reader: e.Reader}
		f.edges = append(f.edges, at)
		f.byID[e.ID] = at
	}
	return f
}

// Run reads the Edges until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	var reading sync.WaitGroup
	for _, e := range f.edges {
		reading.Go(func() { f.pullAlways(ctx, e) })
		reading.Go(func() { f.recordAlways(ctx, e) })
	}
	reading.Wait()
}

// edge is one Edge and what is known of it.
type edge struct {
	id     string
	reader Reader

	mu sync.Mutex
	// What the last good pull brought, and when it began; nil if there was none. The
	// message is never changed.
	snapshot *controlv1.EdgeNodeSnapshot
	at       time.Time
	took     time.Duration
	notices  []string
	// What has failed since.
	failures  int
	lastError string
	// pulls counts ended pulls.
	pulls uint64
	// noHistory is set where the Edge is too old for it; samples then takes its place.
	noHistory bool
	samples   sampled
}
