package intake

import "sync/atomic"

// Small is the size in bytes up to which a body counts as nothing, so that large
// ones never keep ordinary requests out.
const Small = 64 << 10

// Budget is the memory for bodies on their way. The zero Budget is unlimited; it
// is safe for concurrent use.
type Budget struct {
	most atomic.Int64
	held atomic.Int64
}

// Limit sets how many bytes may be held; 0 = any. What is held already stays.
func (b *Budget) Limit(bytes int64) { b.most.Store(bytes) }

// Held is how many bytes are held now.
func (b *Budget) Held() int64 { return b.held.Load() }

// Share is what one body holds of a budget. It is for one goroutine.
type Share struct {
	of   *Budget // nil = unlimited
	held int64
}

// Share begins a body's share, of nothing.
func (b *Budget) Share() Share { return Share{of: b} }

// Grow makes room for a body that needs so many bytes in all; false if there is
// none, and then the share is as it was.
func (s *Share) Grow(size int64) bool {
	if s.of == nil || size <= Small || size <= s.held {
		return true
	}
	more := size - s.held
	held, most := s.of.held.Add(more), s.of.most.Load()
	if most > 0 && held > most {
		s.of.held.Add(-more)
		return false
	}
	s.held = size
	return true
}

// Release gives all of it back. Later calls do nothing until it grows again.
func (s *Share) Release() {
	if s.held > 0 {
		s.of.held.Add(-s.held)
		s.held = 0
	}
}
