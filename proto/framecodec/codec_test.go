package framecodec

import (
	"bytes"
	"strings"
	"testing"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func headers(t *rapid.T) []*runtimev1.Header {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *runtimev1.Header {
		return &runtimev1.Header{
			Name:  rapid.SampledFrom([]string{"", "Content-Type", "Accept", "X-Ratelimit-Limit", "é"}).Draw(t, "name"),
			Value: rapid.OneOf(rapid.String(), rapid.Just("application/json")).Draw(t, "value"),
		}
	}), 0, 4).Draw(t, "headers")
}

func genWorkResponse(t *rapid.T) *runtimev1.WorkResponse {
	m := &runtimev1.WorkResponse{
		RequestNumber: rapid.Uint64().Draw(t, "number"),
		Body:          rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		End:           rapid.Bool().Draw(t, "end"),
	}
	if rapid.Bool().Draw(t, "has begin") {
		m.Begin = &runtimev1.RequestBegin{
			ProviderId: rapid.String().Draw(t, "provider"), Path: rapid.String().Draw(t, "path"),
			ContentLength: rapid.Uint64().Draw(t, "length"), Headers: headers(t),
			IdleTimeoutMs: rapid.Uint32().Draw(t, "idle"), RequestId: rapid.String().Draw(t, "id"),
			TotalTimeoutMs: rapid.Uint32().Draw(t, "total"), ProviderRevision: rapid.Uint64().Draw(t, "revision"),
			ContextWindowTokens: rapid.Uint64().Draw(t, "window"), Target: rapid.String().Draw(t, "target"),
		}
	}
	return m
}

func genWorkRequest(t *rapid.T) *runtimev1.WorkRequest {
	m := &runtimev1.WorkRequest{
		RequestNumber: rapid.Uint64().Draw(t, "number"),
		Body:          rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		End:           rapid.Bool().Draw(t, "end"),
	}
	if rapid.Bool().Draw(t, "has head") {
		m.Head = &runtimev1.ResponseHead{Status: rapid.Uint32().Draw(t, "status"), Headers: headers(t)}
	}
	if rapid.Bool().Draw(t, "has failure") {
		m.Failure = &runtimev1.Failure{
			Code:    runtimev1.FailureCode(rapid.Int32().Draw(t, "code")),
			Message: rapid.String().Draw(t, "message"),
		}
	}
	return m
}

func fromWorkResponse(m *runtimev1.WorkResponse) *Request {
	return &Request{Number: m.RequestNumber, Begin: m.Begin, Parts: [][]byte{m.Body}, End: m.End}
}

func (r *Request) message() *runtimev1.WorkResponse {
	return &runtimev1.WorkResponse{RequestNumber: r.Number, Begin: r.Begin, Body: r.Body, End: r.End}
}

func fromWorkRequest(m *runtimev1.WorkRequest) *Answer {
	return &Answer{Number: m.RequestNumber, Head: m.Head, Body: m.Body, End: m.End, Failure: m.Failure}
}

func (a *Answer) message() *runtimev1.WorkRequest {
	return &runtimev1.WorkRequest{RequestNumber: a.Number, Head: a.Head, Body: a.Body, End: a.End, Failure: a.Failure}
}

// requireEqual compares messages as protobuf does, nil and empty bytes alike.
func requireEqual(t require.TestingT, want, got proto.Message) {
	if !proto.Equal(want, got) {
		require.Fail(t, "messages differ", "want %v\ngot  %v", want, got)
	}
}

func TestFramesAreByteForByteProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deterministic := proto.MarshalOptions{Deterministic: true}

		response := genWorkResponse(t)
		want, err := deterministic.Marshal(response)
		require.NoError(t, err)
		got, err := Codec{}.MarshalAppend([]byte("kept"), fromWorkResponse(response))
		require.NoError(t, err)
		require.Equal(t, "kept"+string(want), string(got))
		var r Request
		require.NoError(t, Codec{}.Unmarshal(want, &r))
		requireEqual(t, response, r.message())

		request := genWorkRequest(t)
		want, err = deterministic.Marshal(request)
		require.NoError(t, err)
		got, err = Codec{}.Marshal(fromWorkRequest(request))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		var a Answer
		require.NoError(t, Codec{}.Unmarshal(want, &a))
		requireEqual(t, request, a.message())
	})
}

func TestUnknownFieldsAreTolerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		response, err := proto.Marshal(genWorkResponse(t))
		require.NoError(t, err)
		extra := protowire.AppendTag(nil, protowire.Number(rapid.IntRange(20, 1<<20).Draw(t, "number")), protowire.BytesType)
		extra = protowire.AppendString(extra, "from a later version")
		extra = protowire.AppendTag(extra, 21, protowire.Fixed64Type)
		extra = protowire.AppendFixed64(extra, 7)
		extra = protowire.AppendTag(extra, 22, protowire.StartGroupType)
		extra = protowire.AppendTag(extra, 22, protowire.EndGroupType)
		// A known number with a type this build does not expect counts as unknown.
		extra = protowire.AppendTag(extra, 1, protowire.BytesType)
		extra = protowire.AppendString(extra, "not a number")

		var plain, more Request
		require.NoError(t, Codec{}.Unmarshal(response, &plain))
		require.NoError(t, Codec{}.Unmarshal(append(extra, response...), &more))
		requireEqual(t, plain.message(), more.message())
	})
}

func TestABodyIsGatheredOverTheFramesOfARequest(t *testing.T) {
	frames := []*Request{
		{Number: 3, Begin: &runtimev1.RequestBegin{ProviderId: "p", ContentLength: 9}, Parts: [][]byte{[]byte("ab"), nil, []byte("c")}},
		{Number: 3, Parts: [][]byte{[]byte("def")}},
		{Number: 3, Parts: [][]byte{[]byte("ghi")}, End: true},
	}
	r := Request{MaxReserve: 1 << 20}
	r.Reset()
	for i, f := range frames {
		if i > 0 {
			r.Next()
		}
		encoded, err := Codec{}.Marshal(f)
		require.NoError(t, err)
		require.NoError(t, Codec{}.Unmarshal(encoded, &r))
		clear(encoded) // Connect re-uses its buffer: nothing may alias it
		require.Equal(t, uint64(3), r.Number)
		require.Equal(t, f.End, r.End)
	}
	require.Equal(t, "abcdefghi", string(r.Body))
	require.LessOrEqual(t, cap(r.Body), 16, "content_length reserves the body's room once")

	first := r.Body
	r.Reset()
	encoded, err := Codec{}.Marshal(&Request{Number: 4, Begin: &runtimev1.RequestBegin{}, Parts: [][]byte{[]byte("XXXXXXXXX")}})
	require.NoError(t, err)
	require.NoError(t, Codec{}.Unmarshal(encoded, &r))
	require.Equal(t, "abcdefghi", string(first), "a body handed on is never written again")
}

func TestAnInflatedContentLengthReservesNoMoreThanAllowed(t *testing.T) {
	encoded, err := Codec{}.Marshal(&Request{Begin: &runtimev1.RequestBegin{ContentLength: 1 << 62}, Parts: [][]byte{[]byte("x")}})
	require.NoError(t, err)
	r := Request{MaxReserve: 4096}
	require.NoError(t, Codec{}.Unmarshal(encoded, &r))
	require.LessOrEqual(t, cap(r.Body), 8192)
}

func TestHeaderValuesOutsideUTF8StillEncodeAsProtobuf(t *testing.T) {
	encoded, err := Codec{}.Marshal(&Answer{Head: &runtimev1.ResponseHead{Headers: []*runtimev1.Header{{Name: "X", Value: "caf\xe9"}}}})
	require.NoError(t, err)
	var m runtimev1.WorkRequest
	require.NoError(t, proto.Unmarshal(encoded, &m))
	require.Equal(t, "caf\uFFFD", m.Head.Headers[0].Value)

	bad := bytes.Replace(encoded, []byte("\xef\xbf\xbd"), []byte("\xff\xff\xff"), 1)
	require.Error(t, proto.Unmarshal(bad, &m))
	require.Error(t, Codec{}.Unmarshal(bad, &Answer{}))
}

func TestOtherMessagesGoThroughProtobuf(t *testing.T) {
	register := &runtimev1.Register{ProtocolVersion: 1, NodeId: "gx10"}
	encoded, err := Codec{}.Marshal(register)
	require.NoError(t, err)
	var got runtimev1.Register
	require.NoError(t, Codec{}.Unmarshal(encoded, &got))
	requireEqual(t, register, &got)

	_, err = Codec{}.Marshal("text")
	require.ErrorContains(t, err, "string")
	require.ErrorContains(t, Codec{}.Unmarshal(nil, new(int)), "*int")
	require.Equal(t, "proto", Codec{}.Name())
}

func TestVersion(t *testing.T) {
	v, ok := Version(ProtocolVersion + 1)
	require.True(t, ok, "a newer peer can speak our version")
	require.EqualValues(t, ProtocolVersion, v)
	_, ok = Version(OldestProtocolVersion - 1)
	require.False(t, ok)
}

func TestAChunkInMidStreamAllocatesNothing(t *testing.T) {
	chunk := []byte("data: " + strings.Repeat("x", 200) + "\n\n")
	sent := Answer{Number: 7, Body: chunk}
	var got Answer
	buffer := make([]byte, 0, 4096)
	got.Body = make([]byte, 0, 4096)
	allocs := testing.AllocsPerRun(100, func() {
		encoded, err := Codec{}.MarshalAppend(buffer[:0], &sent)
		if err != nil {
			t.Fatal(err)
		}
		got.Reset()
		if err := (Codec{}).Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)
	require.Equal(t, chunk, got.Body)
}

// FuzzDecode compares the decoder with google.golang.org/protobuf on arbitrary
// input: what one accepts the other accepts, with the same meaning.
func FuzzDecode(f *testing.F) {
	seed, _ := proto.Marshal(&runtimev1.WorkRequest{RequestNumber: 1, Body: []byte("b"), Failure: &runtimev1.Failure{Code: 2, Message: "m"}})
	f.Add(seed)
	f.Add([]byte{0x12, 0x02, 0x08, 0x01, 0x12, 0x00})
	seed, _ = proto.Marshal(&runtimev1.WorkResponse{RequestNumber: 1, Begin: &runtimev1.RequestBegin{ProviderRevision: 300, ContextWindowTokens: 262144, Target: "é"}})
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var request runtimev1.WorkRequest
		var a Answer
		wantErr, gotErr := proto.Unmarshal(data, &request), Codec{}.Unmarshal(data, &a)
		require.Equal(t, wantErr == nil, gotErr == nil, "protobuf: %v, framecodec: %v", wantErr, gotErr)
		if wantErr == nil {
			require.NoError(t, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, &request))
			requireEqual(t, &request, a.message())
		}
		var response runtimev1.WorkResponse
		var r Request
		wantErr, gotErr = proto.Unmarshal(data, &response), Codec{}.Unmarshal(data, &r)
		require.Equal(t, wantErr == nil, gotErr == nil, "protobuf: %v, framecodec: %v", wantErr, gotErr)
		if wantErr == nil {
			require.NoError(t, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, &response))
			requireEqual(t, &response, r.message())
		}
	})
}
