package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sample() *File {
	return &File{
		Metadata: []Pair{
			{"a.text", "hello"},
			{"a.count", uint32(7)},
			{"a.ratio", float32(0.5)},
			{"a.flag", true},
			{"a.words", []string{"x", "", "yz"}},
			{"a.scores", []float32{1, -2}},
			{"a.kinds", []int32{-1, 6}},
		},
		Tensors: []Tensor{
			{Name: "full", Shape: []uint64{3, 1}, Elements: []float32{1, 2, 3}},
			{Name: "empty", Shape: []uint64{5}, Type: Float16},
			{Name: "last", Shape: []uint64{1}, Elements: []float32{9}},
		},
	}
}

func encode(t *testing.T, f *File) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := f.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, int64(b.Len()), n)
	return b.Bytes()
}

func TestHeaderReadsBackWhatWasWritten(t *testing.T) {
	f := sample()
	data := encode(t, f)
	assert.Equal(t, []byte("GGUF\x03\x00\x00\x00"), data[:8])
	assert.Zero(t, len(data)%alignment)

	h, err := ReadHeader(bufio.NewReader(bytes.NewReader(data)))
	require.NoError(t, err)
	require.Len(t, h.Metadata, len(f.Metadata))
	for _, p := range f.Metadata {
		assert.Equal(t, p.Value, h.Metadata[p.Key], p.Key)
	}
	assert.Equal(t, []Entry{
		{Name: "full", Shape: []uint64{3, 1}, Type: Float32, Offset: 0},
		{Name: "empty", Shape: []uint64{5}, Type: Float16, Offset: 32},
		{Name: "last", Shape: []uint64{1}, Type: Float32, Offset: 64},
	}, h.Tensors)
	assert.Zero(t, h.DataStart%alignment)
	assert.Equal(t, int64(len(data)), h.DataStart+96)
	assert.Equal(t, []byte{0, 0, 0x10, 0x41}, data[h.DataStart+64:][:4], "9 as a little-endian float32")
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	for name, f := range map[string]*File{
		"a value of type int cannot be written": {Metadata: []Pair{{"n", 1}}},
		"do not fill shape":                     {Tensors: []Tensor{{Name: "t", Shape: []uint64{2}, Elements: []float32{1}}}},
		"only a Float32 tensor":                 {Tensors: []Tensor{{Name: "t", Shape: []uint64{1}, Type: Float16, Elements: []float32{1}}}},
	} {
		var b bytes.Buffer
		_, err := f.WriteTo(&b)
		assert.ErrorContains(t, err, name)
	}
}

func TestDamagedHeadersAreErrors(t *testing.T) {
	whole := encode(t, sample())
	h, err := ReadHeader(bufio.NewReader(bytes.NewReader(whole)))
	require.NoError(t, err)
	for cut := range int(h.DataStart) {
		_, err := ReadHeader(bufio.NewReader(bytes.NewReader(whole[:cut])))
		require.Error(t, err, "cut at %d", cut)
	}

	_, err = ReadHeader(bufio.NewReader(bytes.NewReader([]byte("GGML\x03\x00\x00\x00"))))
	assert.ErrorIs(t, err, ErrNotGGUF)

	old := bytes.Clone(whole)
	old[4] = 2
	_, err = ReadHeader(bufio.NewReader(bytes.NewReader(old)))
	assert.ErrorContains(t, err, "version 2, want 3")

	huge := bytes.Clone(whole)
	binary.LittleEndian.PutUint64(huge[24:], 1<<60) // length of the first key
	_, err = ReadHeader(bufio.NewReader(bytes.NewReader(huge)))
	assert.ErrorContains(t, err, "a length of 1152921504606846976")
}
