package nodelink

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// envelope is a Connect envelope with a payload of size bytes.
func envelope(size int) []byte {
	return append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, bytes.Repeat([]byte{'p'}, size)...)
}

// reads counts the reads of the raw body.
type reads struct {
	io.Reader
	n int
}

func (r *reads) Read(p []byte) (int, error) { r.n++; return r.Reader.Read(p) }
func (r *reads) Close() error               { return nil }

func TestSmallFramesCostOneReadOfTheRawBody(t *testing.T) {
	frames := bytes.Repeat(envelope(100), 20)
	raw := &reads{Reader: bytes.NewReader(frames)}
	b := &bodyReader{source: raw}
	var got []byte
	for i := range 20 {
		require.Equal(t, i > 0, b.frameBuffered(), "frame %d", i)
		for _, n := range []int{5, 100} { // as Connect reads: prefix, payload
			p := make([]byte, n)
			_, err := io.ReadFull(b, p)
			require.NoError(t, err)
			got = append(got, p...)
		}
	}
	require.Equal(t, frames, got)
	require.Equal(t, 1, raw.n)
	require.False(t, b.frameBuffered())
	require.Nil(t, b.buffer, "an idle stream holds no buffer")
	_, err := b.Read(make([]byte, 5))
	require.ErrorIs(t, err, io.EOF)
}

func TestHalfAFrameIsNotAFrame(t *testing.T) {
	whole := envelope(10)
	for cut := range whole {
		b := &bodyReader{source: io.NopCloser(bytes.NewReader(append(envelope(0), whole[:cut]...)))}
		_, err := io.ReadFull(b, make([]byte, 5))
		require.NoError(t, err)
		require.False(t, b.frameBuffered(), "%d bytes of %d", cut, len(whole))
		b.release()
	}
}

func TestABodyArrivesWholeHoweverItIsRead(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 20_000)
	for name, source := range map[string]io.Reader{
		"whole": bytes.NewReader(want), "halves": iotest.HalfReader(bytes.NewReader(want)), "data and EOF together": iotest.DataErrReader(bytes.NewReader(want)),
	} {
		t.Run(name, func(t *testing.T) {
			b := &bodyReader{source: io.NopCloser(source)}
			var got []byte
			for size := 1; ; size = size*3%70_001 + 1 {
				p := make([]byte, size)
				n, err := b.Read(p)
				got = append(got, p[:n]...)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
			}
			require.Equal(t, want, got)
		})
	}
}
