package admission

// table finds the live requests by seq. Seqs rise, and live ones lie close
// together, so it is kept in pages of neighbours: with a hundred thousand
// requests a look-up still touches little memory. An empty page is given up.
type table struct {
	pages map[Seq]*page
	spare *page
	n     int
}

// pageSize is a power of two; a page is 2 KiB.
const pageSize = 256

type page struct {
	at [pageSize]*request
	n  int
}

func newTable() table { return table{pages: map[Seq]*page{}} }

// get returns the request, or nil.
func (t *table) get(seq Seq) *request {
	p := t.pages[seq/pageSize]
	if p == nil {
		return nil
	}
	return p.at[seq%pageSize]
}

func (t *table) put(r *request) {
	p := t.pages[r.seq/pageSize]
	if p == nil {
		if p = t.spare; p == nil {
			p = &page{}
		}
		t.spare = nil
		t.pages[r.seq/pageSize] = p
	}
	p.at[r.seq%pageSize] = r
	p.n++
	t.n++
}

func (t *table) drop(seq Seq) {
	p := t.pages[seq/pageSize]
	p.at[seq%pageSize] = nil
	p.n--
	t.n--
	if p.n == 0 {
		delete(t.pages, seq/pageSize)
		t.spare = p
	}
}
