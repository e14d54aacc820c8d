package estimate

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

const (
	// enough is how many answers of a kind are wanted before they count.
	enough = 12
	// memory is how many answers weigh in: beyond it, the older half counts half.
	memory = 512
	// reviewEvery is after how many answers a factor may fall; it rises at once.
	reviewEvery = 8
	// margin is kept above the 99th percentile of what was seen.
	margin = 1.05
	// leastFactor and mostFactor bound what providers' numbers can do to an estimate.
	leastFactor, mostFactor = 0.3, 3.0
	// leastTokens is the shortest prompt that tells anything of its text: shorter ones are mostly a chat template.
	leastTokens = 256
	// maxCalibrated bounds the pairs of target and kind that are remembered, of half a kilobyte each. Of forgettable ones the longest unseen goes.
	maxCalibrated, forgettable = 4096, 8
)

// The ratios of truth to estimate that a scale tells apart: 1 % steps from leastRatio up.
const (
	steps      = 256
	leastRatio = 0.25
)

var stepSize = math.Log(1.01)

// Calibration corrects estimates by what providers have said about earlier prompts, for each served target and kind of text: a tokenizer that makes less of
// a text than the price table fears gives back the excess, one that makes more raises the estimate. It is safe for concurrent use.
type Calibration struct {
	mu     sync.Mutex
	scales map[scaleKey]*scale
	now    uint64 // counts observations
}

type scaleKey struct {
	target string
	cell   cell
}

// scale is the ratios of one target and kind.
type scale struct {
	counts [steps]uint16
	total  int
	seen   uint64  // when last
	factor float64 // what the counts come to; 0 while they are too few
	// percentile is the step that the factor stands for.
	percentile int
}

// Scale is what one target and kind has come to.
type Scale struct {
	Target string
	// Kind is a place among the kinds of text, in words.
	Kind string
	// Answers is how many count, at most about 512.
	Answers int
	// Factor is what an estimate is multiplied by; 0 while the answers are too few.
	Factor float64
}

// NewCalibration returns one without observations.
func NewCalibration() *Calibration { return &Calibration{scales: make(map[scaleKey]*scale)} }

// Observe takes what a provider has counted for a prompt that was estimated. What is no count of the text is passed over: of bodies with more than text,
// of prompts too short to tell anything, and numbers that no tokenizer comes to (some servers count only what their cache did not have).
func (c *Calibration) Observe(target string, e Estimate, counted int) {
	if e.Foreign || e.Fixed > 0 || counted < leastTokens || e.Text < leastTokens {
		return
	}
	ratio := float64(counted) / float64(e.Text)
	if ratio < leastFactor || ratio > 2*mostFactor {
		return
	}
	step := int(math.Ceil(math.Log(ratio/leastRatio) / stepSize)) // rounded up: a step stands for its upper end
	step = min(max(step, 0), steps-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	for _, grid := range grids {
		for _, cell := range e.Kind.around(grid) {
			c.add(scaleKey{target, cell}, step)
		}
	}
}

func (c *Calibration) add(key scaleKey, step int) {
	s := c.scales[key]
	if s == nil {
		if len(c.scales) >= maxCalibrated {
			c.forget()
		}
		s = &scale{}
		c.scales[key] = s
	}
	s.seen = c.now
	s.add(step)
}

// forget drops a scale: of a few arbitrary ones that which was not seen for longest.
func (c *Calibration) forget() {
	var oldest scaleKey
	var seen uint64
	n := 0
	for key, s := range c.scales {
		if n == 0 || s.seen < seen {
			oldest, seen = key, s.seen
		}
		if n++; n == forgettable {
			break
		}
	}
	delete(c.scales, oldest)
}

// Tokens is the estimate of an input that any of the targets may be served. Only the price of text can fall.
func (c *Calibration) Tokens(targets []string, e Estimate) int {
	factor := c.largest(targets, e.Kind)
	if e.Foreign {
		factor = max(factor, 1) // the kind is not that of the text alone
	}
	return e.Fixed + int(math.Ceil(float64(e.Text)*factor))
}

func (c *Calibration) largest(targets []string, kind Kind) float64 {
	if len(targets) == 0 {
		return 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var factor float64
	for _, target := range targets {
		factor = max(factor, c.factor(target, kind))
	}
	return factor
}

// factor is what the finest grid says that has seen enough.
func (c *Calibration) factor(target string, kind Kind) float64 {
	for _, grid := range grids {
		if s := c.scales[scaleKey{target, kind.cell(grid)}]; s != nil && s.factor > 0 {
			return s.factor
		}
	}
	return 1
}

// Reset forgets everything observed of a target; of all targets if it is "".
func (c *Calibration) Reset(target string) (forgotten int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.scales {
		if target == "" || key.target == target {
			delete(c.scales, key)
			forgotten++
		}
	}
	return forgotten
}

// Scales lists what was observed, what has the most answers first, and at most n.
func (c *Calibration) Scales(n int) []Scale {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Scale, 0, len(c.scales))
	for key, s := range c.scales {
		list = append(list, Scale{key.target, key.cell.String(), s.total, s.factor})
	}
	slices.SortFunc(list, func(a, b Scale) int {
		return cmp.Or(cmp.Compare(b.Answers, a.Answers), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Kind, b.Kind))
	})
	return list[:min(len(list), n)]
}

func (s *scale) add(step int) {
	s.counts[step]++
	if s.total++; s.total > memory {
		s.total = 0
		for i := range s.counts {
			s.counts[i] -= s.counts[i] / 2
			s.total += int(s.counts[i])
		}
	}
	if s.total < enough || s.factor > 0 && step <= s.percentile && s.total%reviewEvery != 0 {
		return // too few, or none that raises the percentile
	}
	above := s.total / 100 // how many may lie above the 99th percentile
	for i := steps - 1; i >= 0; i-- {
		if above -= int(s.counts[i]); above < 0 {
			s.percentile = i
			s.factor = min(max(leastRatio*math.Exp(float64(i)*stepSize)*margin, leastFactor), mostFactor)
			return
		}
	}
}
