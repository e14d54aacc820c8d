package framecodec

import (
	"slices"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// Answer is one frame of an answer, from a node to the Edge: WorkRequest on the
// wire.
type Answer struct {
	// Number of the request being answered.
	Number uint64
	// Head is status and header; first frame only.
	Head *runtimev1.ResponseHead
	// Body is the next bytes of the answer. A receive overwrites it in place.
	Body []byte
	// End says that the answer is complete.
	End bool
	// Failure ends a request without a whole answer.
	Failure *runtimev1.Failure
}

// Reset readies a for the next receive. The room of Body is kept.
func (a *Answer) Reset() {
	*a = Answer{Body: a.Body[:0]}
}

func sizeHead(h *runtimev1.ResponseHead) int {
	return sizeUint(uint64(h.Status)) + sizeHeaders(h.Headers)
}

// sizeEnum and appendEnum encode a negative number as protobuf does: in ten bytes.
func sizeEnum[E ~int32](e E) int { return sizeUint(uint64(int64(e))) }

func appendEnum[E ~int32](dst []byte, num protowire.Number, e E) []byte {
	return appendUint(dst, num, uint64(int64(e)))
}

func sizeFailure(f *runtimev1.Failure) int { return sizeEnum(f.Code) + sizeText(f.Message) }

func (a *Answer) append(dst []byte) []byte {
	head, failure := 0, 0
	if a.Head != nil {
		head = sizeHead(a.Head)
	}
	if a.Failure != nil {
		failure = sizeFailure(a.Failure)
	}
	dst = slices.Grow(dst, len(a.Body)+head+failure+maxFixed)
	dst = appendUint(dst, 1, a.Number)
	if h := a.Head; h != nil {
		dst = appendLen(dst, 2, head)
		dst = appendUint(dst, 1, uint64(h.Status))
		dst = appendHeaders(dst, 2, h.Headers)
	}
	if len(a.Body) > 0 {
		dst = appendLen(dst, 3, len(a.Body))
		dst = append(dst, a.Body...)
	}
	dst = appendTrue(dst, 4, a.End)
	if f := a.Failure; f != nil {
		dst = appendLen(dst, 5, failure)
		dst = appendEnum(dst, 1, f.Code)
		dst = appendText(dst, 2, f.Message)
	}
	return dst
}

func (a *Answer) decode(b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.is(1, protowire.VarintType):
			a.Number = f.value
		case f.is(2, protowire.BytesType):
			if a.Head == nil {
				a.Head = &runtimev1.ResponseHead{}
			}
			err = decodeHead(a.Head, f.bytes)
		case f.is(3, protowire.BytesType):
			a.Body = replaceTail(a.Body, 0, f.bytes, 0)
		case f.is(4, protowire.VarintType):
			a.End = f.value != 0
		case f.is(5, protowire.BytesType):
			if a.Failure == nil {
				a.Failure = &runtimev1.Failure{}
			}
			err = decodeFailure(a.Failure, f.bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeHead(head *runtimev1.ResponseHead, b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.is(1, protowire.VarintType):
			head.Status = uint32(f.value)
		case f.is(2, protowire.BytesType):
			var h *runtimev1.Header
			h, err = decodeHeader(f.bytes)
			head.Headers = append(head.Headers, h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeFailure(failure *runtimev1.Failure, b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.is(1, protowire.VarintType):
			failure.Code = runtimev1.FailureCode(int32(f.value))
		case f.is(2, protowire.BytesType):
			failure.Message, err = f.text()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
