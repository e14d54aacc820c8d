package admission

// heap is a binary heap of the lines that may wait for a resource, by key. Every
// line with waiters is in it; a line without any may be, until it comes to the
// top. A key is at most the seq of its line's head.
type heap []*link

// top is the line whose head has the smallest seq, or nil. Lines at the top that
// have emptied or whose head has moved on are mended on the way.
func (h *heap) top() *link {
	for len(*h) > 0 {
		k := (*h)[0]
		head := k.line.head()
		switch {
		case head == nil:
			h.remove(k)
		case k.key != head.seq:
			k.key = head.seq
			h.down(0)
		default:
			return k
		}
	}
	return nil
}

func (h *heap) add(k *link) {
	k.pos = len(*h)
	*h = append(*h, k)
	h.up(k.pos)
}

// remove takes the link out; it does nothing if the link is not in the heap.
func (h *heap) remove(k *link) {
	i, last := k.pos, len(*h)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	k.pos = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].key <= h[i].key {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h heap) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h) && h[child].key < h[least].key {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}
