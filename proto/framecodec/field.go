package framecodec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

var errUTF8 = errors.New("framecodec: a string field is not valid UTF-8")

// field is one field read off the wire. A field of a type this build does not
// expect is passed over by its reader, as protobuf asks.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	value uint64 // of a varint
	bytes []byte // of a length-delimited field; aliases the input
}

// is reports whether f is the known field num of type typ.
func (f *field) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// next reads the field at the start of b and returns what follows it.
func next(b []byte) (f field, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, fmt.Errorf("framecodec: bad tag: %w", protowire.ParseError(n))
	}
	if !num.IsValid() {
		return f, nil, fmt.Errorf("framecodec: bad tag: field number %d is out of range", num)
	}
	b = b[n:]
	f.num, f.typ = num, typ
	switch typ {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return f, nil, fmt.Errorf("framecodec: bad field %d: %w", num, protowire.ParseError(n))
	}
	return f, b[n:], nil
}

// text is the field as a string. Values that nearly every frame carries cost no
// allocation.
func (f *field) text() (string, error) {
	switch string(f.bytes) {
	case "":
		return "", nil
	case "Content-Type":
		return "Content-Type", nil
	case "Accept":
		return "Accept", nil
	case "application/json":
		return "application/json", nil
	case "text/event-stream":
		return "text/event-stream", nil
	case "text/event-stream; charset=utf-8":
		return "text/event-stream; charset=utf-8", nil
	case "/v1/chat/completions":
		return "/v1/chat/completions", nil
	}
	if !utf8.Valid(f.bytes) {
		return "", errUTF8
	}
	return string(f.bytes), nil
}

// clean is s as protobuf may carry it: header values may hold Latin-1.
func clean(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Field numbers of this wire are below 16: a tag is one byte.
const tagSize = 1

func sizeText(s string) int {
	if s == "" {
		return 0
	}
	return tagSize + protowire.SizeBytes(len(clean(s)))
}

func appendText(dst []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendString(dst, clean(s))
}

func sizeUint(v uint64) int {
	if v == 0 {
		return 0
	}
	return tagSize + protowire.SizeVarint(v)
}

func appendUint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.VarintType)
	return protowire.AppendVarint(dst, v)
}

func appendTrue(dst []byte, num protowire.Number, v bool) []byte {
	if !v {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.VarintType)
	return append(dst, 1)
}

// appendLen starts a length-delimited field of size bytes, which the caller
// appends.
func appendLen(dst []byte, num protowire.Number, size int) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size))
}

// replaceTail puts b in place of all that follows the first keep bytes of dst,
// growing dst once to at least want bytes if it must grow.
func replaceTail(dst []byte, keep int, b []byte, want int) []byte {
	dst = dst[:keep]
	if need := keep + len(b); need > cap(dst) {
		dst = slices.Grow(dst, max(need, want)-keep)
	}
	return append(dst, b...)
}
