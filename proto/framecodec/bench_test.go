package framecodec

import (
	"testing"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"google.golang.org/protobuf/proto"
)

var benchChunk = make([]byte, 200)

func BenchmarkChunk(b *testing.B) {
	b.ReportAllocs()
	sent := Answer{Number: 7, Body: benchChunk}
	var got Answer
	var buffer []byte
	for b.Loop() {
		buffer, _ = Codec{}.MarshalAppend(buffer[:0], &sent)
		got.Reset()
		if err := (Codec{}).Unmarshal(buffer, &got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkChunkProtobuf(b *testing.B) {
	b.ReportAllocs()
	sent := &runtimev1.WorkRequest{RequestNumber: 7, Body: benchChunk}
	var buffer []byte
	for b.Loop() {
		buffer, _ = proto.MarshalOptions{}.MarshalAppend(buffer[:0], sent)
		var got runtimev1.WorkRequest
		if err := proto.Unmarshal(buffer, &got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBegin(b *testing.B) {
	b.ReportAllocs()
	sent := Request{
		Number: 7, End: true, Parts: [][]byte{make([]byte, 1024)},
		Begin: &runtimev1.RequestBegin{
			ProviderId: "vllm", Path: "/v1/chat/completions", ContentLength: 1024, RequestId: "req-1234567890",
			Headers: []*runtimev1.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Accept", Value: "text/event-stream"}},
		},
	}
	got := Request{MaxReserve: 1 << 20}
	var buffer []byte
	for b.Loop() {
		buffer, _ = Codec{}.MarshalAppend(buffer[:0], &sent)
		got.Reset()
		if err := (Codec{}).Unmarshal(buffer, &got); err != nil {
			b.Fatal(err)
		}
	}
}
