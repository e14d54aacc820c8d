package nodelink

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
)

// BenchmarkExchange is one 1 KiB request and its one-frame answer, both ends in
// this process, over loopback.
func BenchmarkExchange(b *testing.B) {
	e := newEdge(b)
	e.connect("one", echo)
	body := string(make([]byte, 1024))
	b.ReportAllocs()
	for b.Loop() {
		e.exchange(body)
	}
}

// BenchmarkFrame is one 200-byte frame in mid-stream.
func BenchmarkFrame(b *testing.B) {
	e := newEdge(b)
	e.connect("one", func(ctx context.Context, _ *runtimev1.RequestBegin, _ []byte, out provider.Writer) error {
		chunk := provider.Frame{Body: make([]byte, 200)}
		for ctx.Err() == nil {
			if err := out.Frame(&chunk); err != nil {
				return err
			}
		}
		return out.Frame(&provider.Frame{End: true})
	})
	h := e.take()
	require.NoError(b, h.begin(""))
	var f dispatch.Frame
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Receive(&f); err != nil {
			b.Fatal(err)
		}
	}
	h.Cancel()
	for !f.End {
		require.NoError(b, h.Receive(&f))
	}
	h.Park()
}

// BenchmarkParkedStream reports the memory of a parked stream, both ends together.
func BenchmarkParkedStream(b *testing.B) {
	const streams = 400
	e := newEdge(b)
	e.connect("one", echo)
	e.take().Park()
	memory := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := memory()
	held := make([]*handOff, 0, streams)
	for range streams {
		held = append(held, e.take())
	}
	for _, h := range held {
		h.Park()
	}
	size := float64(memory()-before) / streams / 1024
	for b.Loop() { // nothing is timed
	}
	b.ReportMetric(size, "KiB/stream")
}
