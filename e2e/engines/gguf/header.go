package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// maxLength bounds every length a header names, in elements or bytes: a damaged
// file must give an error, not an attempt to allocate what it claims.
const maxLength = 1 << 20

// Entry is a tensor as the directory of a file describes it. Offset counts
// bytes from the start of the data section.
type Entry struct {
	Name   string
	Shape  []uint64
	Type   ElementType
	Offset uint64
}

// Header is everything before the tensor data.
type Header struct {
	// Metadata has the types that Pair allows.
	Metadata map[string]any
	Tensors  []Entry
	// DataStart is the offset of the data section in bytes.
	DataStart int64
}

// ReadHeader reads a header written by WriteTo, and leaves r behind it.
func ReadHeader(r *bufio.Reader) (*Header, error) {
	d := &decoder{r: r}
	if string(d.raw(len(magic))) != magic {
		return nil, ErrNotGGUF
	}
	if v := d.uint32(); d.err == nil && v != version {
		return nil, fmt.Errorf("gguf: version %d, want %d", v, version)
	}
	tensors, pairs := d.length(), d.length()
	h := &Header{Metadata: make(map[string]any, pairs)}
	for range pairs {
		key := d.string()
		value := d.value(valueType(d.uint32()))
		if d.err != nil {
			return nil, d.err
		}
		if _, twice := h.Metadata[key]; twice {
			return nil, fmt.Errorf("gguf: metadata %q appears twice", key)
		}
		h.Metadata[key] = value
	}
	for range tensors {
		h.Tensors = append(h.Tensors, d.entry())
		if d.err != nil {
			return nil, d.err
		}
	}
	d.raw(int(padded(uint64(d.n)) - uint64(d.n)))
	h.DataStart = d.n
	return h, d.err
}

// decoder keeps the first error; after it every value read is zero.
type decoder struct {
	r   *bufio.Reader
	n   int64
	err error
}

func (d *decoder) raw(n int) []byte {
	b := make([]byte, n)
	if d.err != nil {
		return b
	}
	m, err := io.ReadFull(d.r, b)
	d.n += int64(m)
	if err != nil {
		d.err = fmt.Errorf("gguf: header broken off after %d bytes: %w", d.n, err)
	}
	return b
}

func (d *decoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.raw(4)) }
func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.raw(8)) }

func (d *decoder) length() int {
	n := d.uint64()
	if n > maxLength {
		if d.err == nil {
			d.err = fmt.Errorf("gguf: a length of %d before byte %d is more than %d", n, d.n, maxLength)
		}
		return 0
	}
	return int(n)
}

func (d *decoder) string() string { return string(d.raw(d.length())) }

func (d *decoder) value(t valueType) any {
	switch t {
	case typeUint32:
		return d.uint32()
	case typeFloat32:
		return math.Float32frombits(d.uint32())
	case typeBool:
		return d.raw(1)[0] != 0
	case typeString:
		return d.string()
	case typeArray:
		return d.array(valueType(d.uint32()), d.length())
	}
	if d.err == nil {
		d.err = fmt.Errorf("gguf: value type %d before byte %d is not one this package writes", t, d.n)
	}
	return nil
}

func (d *decoder) array(t valueType, n int) any {
	switch t {
	case typeString:
		return fill(n, d.string)
	case typeFloat32:
		return fill(n, func() float32 { return math.Float32frombits(d.uint32()) })
	case typeInt32:
		return fill(n, func() int32 { return int32(d.uint32()) })
	}
	if d.err == nil {
		d.err = fmt.Errorf("gguf: element type %d before byte %d is not one this package writes", t, d.n)
	}
	return nil
}

func fill[T any](n int, next func() T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = next()
	}
	return s
}

func (d *decoder) entry() Entry {
	e := Entry{Name: d.string()}
	dims := d.uint32()
	if dims > 4 && d.err == nil {
		d.err = fmt.Errorf("gguf: tensor %q has %d dimensions, more than 4", e.Name, dims)
		return e
	}
	for range dims {
		e.Shape = append(e.Shape, d.uint64())
	}
	e.Type = ElementType(d.uint32())
	e.Offset = d.uint64()
	return e
}
