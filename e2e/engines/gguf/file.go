package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	magic   = "GGUF"
	version = 3
	// alignment of the tensor data in bytes; the format's default, so that no
	// general.alignment key is needed.
	alignment = 32
)

// valueType numbers a metadata value as the format does.
type valueType uint32

const (
	typeUint32  valueType = 4
	typeInt32   valueType = 5
	typeFloat32 valueType = 6
	typeBool    valueType = 7
	typeString  valueType = 8
	typeArray   valueType = 9
)

// ElementType numbers the element type of a tensor as the format does.
type ElementType uint32

// The element types this package can write.
const (
	Float32 ElementType = 0
	Float16 ElementType = 1
)

// size is the width of one element in bytes.
func (t ElementType) size() uint64 {
	if t == Float16 {
		return 2
	}
	return 4
}

// Pair is one metadata entry. Value is a uint32, float32, bool, string,
// []string, []float32 or []int32; anything else is an error of WriteTo.
type Pair struct {
	Key   string
	Value any
}

// Tensor is one named array of numbers. Shape lists the fastest-running
// dimension first, as the format does. Elements holds the numbers row after
// row; nil means that all of them are zero, the only content a Float16 tensor
// may have here.
type Tensor struct {
	Name     string
	Shape    []uint64
	Type     ElementType
	Elements []float32
}

func (t *Tensor) count() uint64 {
	n := uint64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

func (t *Tensor) bytes() uint64 { return t.count() * t.Type.size() }

func (t *Tensor) validate() error {
	switch {
	case t.Elements == nil:
		return nil
	case t.Type != Float32:
		return fmt.Errorf("gguf: tensor %q: only a Float32 tensor may have elements", t.Name)
	case uint64(len(t.Elements)) != t.count():
		return fmt.Errorf("gguf: tensor %q: %d elements do not fill shape %v", t.Name, len(t.Elements), t.Shape)
	}
	return nil
}

// File is a model: its metadata and its tensors, in the order they are written.
type File struct {
	Metadata []Pair
	Tensors  []Tensor
}

// WriteTo writes the file. The same File gives the same bytes every time.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	e := &encoder{w: bufio.NewWriter(w)}
	e.raw([]byte(magic))
	e.uint32(version)
	e.uint64(uint64(len(f.Tensors)))
	e.uint64(uint64(len(f.Metadata)))
	for _, p := range f.Metadata {
		e.pair(p)
	}
	var offset uint64 // of a tensor's data, from the start of the data section
	for i := range f.Tensors {
		t := &f.Tensors[i]
		e.fail(t.validate())
		e.string(t.Name)
		e.uint32(uint32(len(t.Shape)))
		for _, d := range t.Shape {
			e.uint64(d)
		}
		e.uint32(uint32(t.Type))
		e.uint64(offset)
		offset += padded(t.bytes())
	}
	e.pad()
	for i := range f.Tensors {
		e.tensor(&f.Tensors[i])
		e.pad()
	}
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.n, e.err
}

func padded(n uint64) uint64 { return (n + alignment - 1) / alignment * alignment }

// encoder keeps the first error and the number of bytes written so far; after
// an error it writes nothing more.
type encoder struct {
	w   *bufio.Writer
	n   int64
	err error
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *encoder) raw(b []byte) {
	if e.err != nil {
		return
	}
	n, err := e.w.Write(b)
	e.n += int64(n)
	e.err = err
}

func (e *encoder) uint32(v uint32) { e.raw(binary.LittleEndian.AppendUint32(nil, v)) }
func (e *encoder) uint64(v uint64) { e.raw(binary.LittleEndian.AppendUint64(nil, v)) }

func (e *encoder) string(s string) {
	e.uint64(uint64(len(s)))
	e.raw([]byte(s))
}

func (e *encoder) array(t valueType, n int) {
	e.uint32(uint32(typeArray))
	e.uint32(uint32(t))
	e.uint64(uint64(n))
}

func (e *encoder) pad() {
	e.raw(make([]byte, padded(uint64(e.n))-uint64(e.n)))
}

func (e *encoder) pair(p Pair) {
	e.string(p.Key)
	switch v := p.Value.(type) {
	case uint32:
		e.uint32(uint32(typeUint32))
		e.uint32(v)
	case float32:
		e.uint32(uint32(typeFloat32))
		e.uint32(math.Float32bits(v))
	case bool:
		e.uint32(uint32(typeBool))
		b := byte(0)
		if v {
			b = 1
		}
		e.raw([]byte{b})
	case string:
		e.uint32(uint32(typeString))
		e.string(v)
	case []string:
		e.array(typeString, len(v))
		for _, s := range v {
			e.string(s)
		}
	case []float32:
		e.array(typeFloat32, len(v))
		e.floats(v)
	case []int32:
		e.array(typeInt32, len(v))
		for _, n := range v {
			e.uint32(uint32(n))
		}
	default:
		e.fail(fmt.Errorf("gguf: metadata %q: a value of type %T cannot be written", p.Key, p.Value))
	}
}

func (e *encoder) floats(v []float32) {
	for _, x := range v {
		e.uint32(math.Float32bits(x))
	}
}

func (e *encoder) tensor(t *Tensor) {
	if t.Elements == nil {
		e.raw(make([]byte, t.bytes()))
		return
	}
	e.floats(t.Elements)
}

// ErrNotGGUF is returned for data that does not begin as a GGUF file does.
var ErrNotGGUF = errors.New("gguf: not a GGUF file")
