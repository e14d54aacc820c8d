package config

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// maxTokens bounds token counts, so that they fit any integer they are put in.
const maxTokens = 1 << 40

// tokens judges token counts by themselves.
func (r *rules) tokens() {
	if n := r.cfg.GetLongContextThresholdTokens(); n > maxTokens {
		r.problem("long_context_threshold_tokens", "found %d; at most %d", n, uint64(maxTokens))
	}
	for i, m := range r.cfg.GetModels() {
		if n := m.GetContextWindowTokens(); n > maxTokens {
			r.problem(fmt.Sprintf("models[%d].context_window_tokens", i), "found %d; at most %d", n, uint64(maxTokens))
		}
	}
}

// long judges the context arithmetic of the providers that keep long slots
// apart (L03, S04): the server's context must hold as many requests of a full
// window as it has long slots, for every model group that it serves.
func (r *rules) long() {
	for i, n := range r.cfg.GetNodes() {
		for j, p := range n.GetProviders() {
			if p.GetLongContextCapacity() == 0 {
				continue
			}
			path := fmt.Sprintf("nodes[%d].providers[%d]", i, j)
			if r.doc.Broken(path+".total_context_tokens") || r.doc.Broken(path+".long_context_capacity") {
				continue
			}
			if p.GetTotalContextTokens() == 0 {
				r.problem(path+".long_context_capacity", "found %d; it needs total_context_tokens beside it", p.GetLongContextCapacity())
				continue
			}
			r.windows(n.GetId(), p, path)
		}
	}
}

// windows judges one provider with long slots against the models it serves.
func (r *rules) windows(node string, p *configv1.Provider, path string) {
	slots, total := uint64(p.GetLongContextCapacity()), p.GetTotalContextTokens()
	for i, m := range r.cfg.GetModels() {
		serves := false
		for _, c := range m.GetProviders() {
			serves = serves || node != "" && p.GetId() != "" && c.GetNode() == node && c.GetProvider() == p.GetId()
		}
		if !serves {
			continue
		}
		window := m.GetContextWindowTokens()
		if window == 0 {
			r.problem(fmt.Sprintf("models[%d].context_window_tokens", i),
				"missing; model %q is served by %s/%s, which has long_context_capacity %d (%s)",
				m.GetId(), node, p.GetId(), slots, r.doc.Where(path+".long_context_capacity"))
			continue
		}
		if over, need := bits.Mul64(window, slots); over != 0 || total < need {
			r.problem(path+".total_context_tokens",
				"found %d; model %q (%s) needs %s: context_window_tokens %d x long_context_capacity %d",
				total, m.GetId(), r.doc.Where(fmt.Sprintf("models[%d]", i)), atLeast(over, need), window, slots)
		}
	}
}

// atLeast spells a 128-bit need.
func atLeast(high, low uint64) string {
	if high != 0 {
		return "more than 2^64"
	}
	return fmt.Sprintf("at least %d", low)
}

// legacyField is a queue value that providers used to own.
type legacyField struct {
	name     string
	value    func(*configv1.Provider) uint32
	declared func(*configv1.ProviderPool) bool
	promote  func(*configv1.ProviderPool, uint32)
	most     uint32
}

var legacyFields = []legacyField{
	{
		name:     "max_queue",
		value:    (*configv1.Provider).GetMaxQueue,
		declared: func(p *configv1.ProviderPool) bool { return p.MaxQueue != nil },
		promote:  func(p *configv1.ProviderPool, v uint32) { p.MaxQueue = &v },
		most:     1_000_000,
	},
	{
		name:     "queue_timeout_ms",
		value:    (*configv1.Provider).GetQueueTimeoutMs,
		declared: func(p *configv1.ProviderPool) bool { return p.QueueTimeoutMs != nil },
		promote:  func(p *configv1.ProviderPool, v uint32) { p.QueueTimeoutMs = &v },
		most:     1<<32 - 1,
	},
}

// legacy settles what providers still say about the queue (S06), each field by
// itself and over the non-zero values: ignored beside a value of the pool;
// promoted to the pool's value when they are equal; refused when they differ.
func (r *rules) legacy() {
	if r.cfg.ProviderPool == nil {
		r.cfg.ProviderPool = &configv1.ProviderPool{}
	}
	pool := r.cfg.GetProviderPool()
	for _, f := range legacyFields {
		paths, values := r.declared(f)
		if len(paths) == 0 {
			continue
		}
		if r.doc.Broken("provider_pool." + f.name) {
			continue // the pool has a value, which is not known
		}
		if f.declared(pool) {
			for _, path := range paths {
				r.warn(path, "ignored: provider_pool.%s governs the queue; \"iop config migrate\" removes it here", f.name)
			}
			continue
		}
		if r.agree(f, paths, values) {
			f.promote(pool, values[0])
			r.origins.Note("provider_pool."+f.name, configs.FromLegacy, "values of providers", paths...)
			r.warn(paths[0], "deprecated: taken as provider_pool.%s: %d; \"iop config migrate\" writes it there and removes it from the providers", f.name, values[0])
		}
	}
}

// declared lists where providers declare a non-zero value of the field.
func (r *rules) declared(f legacyField) (paths []string, values []uint32) {
	for i, n := range r.cfg.GetNodes() {
		for j, p := range n.GetProviders() {
			if v := f.value(p); v != 0 {
				paths = append(paths, fmt.Sprintf("nodes[%d].providers[%d].%s", i, j, f.name))
				values = append(values, v)
			}
		}
	}
	return paths, values
}

// agree reports whether the values are one and can be the pool's.
func (r *rules) agree(f legacyField, paths []string, values []uint32) bool {
	var others []string
	differ := false
	for k := 1; k < len(values); k++ {
		others = append(others, fmt.Sprintf("%d on %s (%s)", values[k], r.doc.Where(paths[k]), paths[k]))
		differ = differ || values[k] != values[0]
	}
	switch {
	case differ:
		r.problem(paths[0], "found %d here, %s; providers own no queue policy: write one value as provider_pool.%s and remove these",
			values[0], strings.Join(others, ", "), f.name)
		return false
	case values[0] > f.most:
		r.problem(paths[0], "found %d; at most %d", values[0], f.most)
		return false
	}
	return true
}

// routeLimit is the effective queue value of a route: its own, else that of its
// adapter's legacy field, else that of the pool (R03). The middle one has no
// code: legacy values count only while the pool has none and only when all are
// equal, and then legacy has made them the pool's.
func routeLimit(own int32, pool uint32) int32 {
	if own != 0 {
		return own
	}
	return int32(min(pool, 1<<31-1))
}
