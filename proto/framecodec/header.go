package framecodec

import (
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"google.golang.org/protobuf/encoding/protowire"
)

func sizeHeader(h *runtimev1.Header) int { return sizeText(h.GetName()) + sizeText(h.GetValue()) }

func sizeHeaders(hs []*runtimev1.Header) (size int) {
	for _, h := range hs {
		size += tagSize + protowire.SizeBytes(sizeHeader(h))
	}
	return size
}

func appendHeaders(dst []byte, num protowire.Number, hs []*runtimev1.Header) []byte {
	for _, h := range hs {
		dst = appendLen(dst, num, sizeHeader(h))
		dst = appendText(dst, 1, h.GetName())
		dst = appendText(dst, 2, h.GetValue())
	}
	return dst
}

func decodeHeader(b []byte) (*runtimev1.Header, error) {
	h := &runtimev1.Header{}
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		b = rest
		switch {
		case f.is(1, protowire.BytesType):
			h.Name, err = f.text()
		case f.is(2, protowire.BytesType):
			h.Value, err = f.text()
		}
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}
