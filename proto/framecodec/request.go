package framecodec

import (
	"slices"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// Request is one frame of a request, from the Edge to a node: WorkResponse on
// the wire.
type Request struct {
	// Number of the request on its stream.
	Number uint64
	// Begin starts the request; first frame only.
	Begin *runtimev1.RequestBegin
	// Parts are body bytes to send, as one run.
	Parts [][]byte
	// Body is where received body bytes are appended: over the frames of one
	// request it grows to the whole body.
	Body []byte
	// MaxReserve bounds, in bytes, how much room Begin.content_length may
	// reserve in Body ahead of the bytes themselves.
	MaxReserve int
	// End says that the body is complete.
	End bool
}

// Reset readies r for the first frame of a request. The body it held is left to
// whoever still uses it.
func (r *Request) Reset() {
	clear(r.Parts)
	*r = Request{Parts: r.Parts[:0], MaxReserve: r.MaxReserve}
}

// Next readies r to receive the next frame of the same request: the body so far
// is kept.
func (r *Request) Next() {
	r.Number, r.Begin, r.End = 0, nil, false
}

func sizeBegin(b *runtimev1.RequestBegin) int {
	return sizeText(b.ProviderId) + sizeText(b.Path) + sizeUint(b.ContentLength) + sizeHeaders(b.Headers) +
		sizeUint(uint64(b.IdleTimeoutMs)) + sizeText(b.RequestId) + sizeUint(uint64(b.TotalTimeoutMs)) +
		sizeUint(b.ProviderRevision) + sizeUint(b.ContextWindowTokens) + sizeText(b.Target)
}

func (r *Request) append(dst []byte) []byte {
	body := 0
	for _, p := range r.Parts {
		body += len(p)
	}
	begin := 0
	if r.Begin != nil {
		begin = sizeBegin(r.Begin)
	}
	dst = slices.Grow(dst, body+begin+maxFixed)
	dst = appendUint(dst, 1, r.Number)
	if b := r.Begin; b != nil {
		dst = appendLen(dst, 2, begin)
		dst = appendText(dst, 1, b.ProviderId)
		dst = appendText(dst, 2, b.Path)
		dst = appendUint(dst, 3, b.ContentLength)
		dst = appendHeaders(dst, 4, b.Headers)
		dst = appendUint(dst, 5, uint64(b.IdleTimeoutMs))
		dst = appendText(dst, 6, b.RequestId)
		dst = appendUint(dst, 7, uint64(b.TotalTimeoutMs))
		dst = appendUint(dst, 8, b.ProviderRevision)
		dst = appendUint(dst, 9, b.ContextWindowTokens)
		dst = appendText(dst, 10, b.Target)
	}
	if body > 0 {
		dst = appendLen(dst, 3, body)
		for _, p := range r.Parts {
			dst = append(dst, p...)
		}
	}
	return appendTrue(dst, 4, r.End)
}

// maxFixed is room for the number, the tags and the lengths of a frame.
const maxFixed = 64

func (r *Request) decode(b []byte) error {
	keep := len(r.Body)
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.is(1, protowire.VarintType):
			r.Number = f.value
		case f.is(2, protowire.BytesType):
			if r.Begin == nil {
				r.Begin = &runtimev1.RequestBegin{}
			}
			err = decodeBegin(r.Begin, f.bytes)
		case f.is(3, protowire.BytesType):
			reserve := 0
			if r.Begin != nil {
				reserve = int(min(r.Begin.ContentLength, uint64(r.MaxReserve)))
			}
			r.Body = replaceTail(r.Body, keep, f.bytes, reserve)
		case f.is(4, protowire.VarintType):
			r.End = f.value != 0
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeBegin(begin *runtimev1.RequestBegin, b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.is(1, protowire.BytesType):
			begin.ProviderId, err = f.text()
		case f.is(2, protowire.BytesType):
			begin.Path, err = f.text()
		case f.is(3, protowire.VarintType):
			begin.ContentLength = f.value
		case f.is(4, protowire.BytesType):
			var h *runtimev1.Header
			h, err = decodeHeader(f.bytes)
			begin.Headers = append(begin.Headers, h)
		case f.is(5, protowire.VarintType):
			begin.IdleTimeoutMs = uint32(f.value)
		case f.is(6, protowire.BytesType):
			begin.RequestId, err = f.text()
		case f.is(7, protowire.VarintType):
			begin.TotalTimeoutMs = uint32(f.value)
		case f.is(8, protowire.VarintType):
			begin.ProviderRevision = f.value
		case f.is(9, protowire.VarintType):
			begin.ContextWindowTokens = f.value
		case f.is(10, protowire.BytesType):
			begin.Target, err = f.text()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
