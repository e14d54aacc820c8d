package splice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const replacement = `"asked-for"`

// run feeds body in the given chunk sizes (repeated) and returns what came out.
func run(s *Splicer, body []byte, sizes []int) []byte {
	var out, scratch []byte
	for i := 0; len(body) > 0; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(body))
		scratch = s.Append(scratch[:0], body[:n])
		out = append(out, scratch...)
		body = body[n:]
	}
	return s.Close(out)
}

func genString() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{`"model"`, `"model\":\"x"`, `"a\\"`, `"\u006dodel"`, `""`, `"{\"model\":\"x\"}"`, `"é한🎉"`, `"]}"`, `"data: x\n\n"`, `"\\\\\""`}),
		rapid.Map(rapid.StringN(0, 40, 200), func(s string) string {
			b, _ := json.Marshal(s)
			return string(b)
		}),
	)
}

func genKey() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{`"model"`, `"mo\u0064el"`, `"Model"`, `"response"`, `"message"`, `"choices"`, `"usage"`, `"error"`, `"type"`, `"finish_reason"`, `"prompt_tokens"`, `"done"`, `"models"`, `"mode"`}),
		genString())
}

func genValue(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kind := rapid.IntRange(0, 9).Draw(t, "kind")
		space := rapid.SampledFrom([]string{"", "", " ", "\t", "  "})
		switch {
		case kind < 4 || depth <= 0:
			return genString().Draw(t, "string")
		case kind == 4:
			return rapid.SampledFrom([]string{"0", "-1.5e+10", "12345678901234567890", "true", "false", "null", "17"}).Draw(t, "scalar")
		case kind == 5:
			var parts []string
			for range rapid.IntRange(0, 4).Draw(t, "n") {
				parts = append(parts, space.Draw(t, "s")+genValue(depth-1).Draw(t, "v"))
			}
			return "[" + strings.Join(parts, ",") + space.Draw(t, "s") + "]"
		default:
			return genObject(depth-1).Draw(t, "object")
		}
	})
}

func genObject(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		space := rapid.SampledFrom([]string{"", "", " ", "\t", "  "})
		var parts []string
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			parts = append(parts, space.Draw(t, "s")+genKey().Draw(t, "k")+space.Draw(t, "s")+":"+space.Draw(t, "s")+genValue(depth).Draw(t, "v")+space.Draw(t, "s"))
		}
		return "{" + strings.Join(parts, ",") + "}"
	})
}

func TestProperty_JSONEqualsReferenceForAnyChunking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(genObject(4).Draw(t, "doc"))
		if !json.Valid(doc) {
			t.Fatalf("the generator made an invalid document: %s", doc)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 8).Draw(t, "sizes")
		want := replace(doc, referenceJSON(doc, false), replacement)
		if got := run(New(JSON, []byte(replacement)), doc, sizes); !bytes.Equal(got, want) {
			t.Fatalf("\n got %s\nwant %s\nfrom %s", got, want, doc)
		}
	})
}

func TestProperty_SSEEqualsReferenceForAnyChunking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Mixed line ends, but for a CR before a lone LF, which would be one line end.
		eol := rapid.SampledFrom(rapid.SampledFrom([][]string{{"\n"}, {"\n", "\r\n"}, {"\r", "\r\n"}}).Draw(t, "ends"))
		var body strings.Builder
		for range rapid.IntRange(1, 6).Draw(t, "events") {
			for range rapid.IntRange(0, 2).Draw(t, "extra") {
				body.WriteString(rapid.SampledFrom([]string{": ping", ":", "event: x", "id: 1", "retry:3", "datax: {\"model\":\"y\"}", "model", "event:error"}).Draw(t, "line"))
				body.WriteString(eol.Draw(t, "eol"))
			}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				body.WriteString("data: [DONE]" + eol.Draw(t, "eol"))
			case 1:
				body.WriteString("data: plain text" + eol.Draw(t, "eol"))
			default:
				doc := genObject(3).Draw(t, "doc")
				// A data line may be broken wherever JSON allows white space: here after the commas outside strings.
				body.WriteString("data:" + rapid.SampledFrom([]string{"", " ", "  "}).Draw(t, "space"))
				for i, c := range []byte(doc) {
					body.WriteByte(c)
					if c == ',' && i%3 == 0 && json.Valid([]byte(doc[:i+1]+"\n"+doc[i+1:])) {
						body.WriteString(eol.Draw(t, "eol") + "data:" + rapid.SampledFrom([]string{"", " "}).Draw(t, "space"))
					}
				}
				body.WriteString(eol.Draw(t, "eol"))
			}
			body.WriteString(eol.Draw(t, "eol"))
		}
		raw := []byte(body.String())
		raw = raw[:len(raw)-rapid.IntRange(0, 1).Draw(t, "cut")]
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "sizes")
		want := replace(raw, referenceSSE(raw), replacement)
		if got := run(New(SSE, []byte(replacement)), raw, sizes); !bytes.Equal(got, want) {
			t.Fatalf("\n got %q\nwant %q\nfrom %q", got, want, raw)
		}
	})
}

func TestProperty_NDJSONEqualsReferenceForAnyChunking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var body strings.Builder
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				body.WriteString(rapid.SampledFrom([]string{"", "plain", "[DONE]", `["model"]`, `{"done":true`, `{"model":"cut`, `{"model":"x"}{"model":"y"}`}).Draw(t, "odd"))
			case 1:
				body.WriteString(`{"model":"m","done":` + rapid.SampledFrom([]string{"true", "false", " true ", `"true"`, `true,"done":false`}).Draw(t, "done") + "}")
			default:
				body.WriteString(genObject(3).Draw(t, "doc"))
			}
			body.WriteString(rapid.SampledFrom([]string{"\n", "\n", "\r\n", "\n\n", " \n"}).Draw(t, "eol"))
		}
		raw := []byte(body.String())
		raw = raw[:len(raw)-rapid.IntRange(0, 1).Draw(t, "cut")]
		// Two objects on a line are no JSON: the first is spliced all the same.
		spans, done := referenceNDJSON(bytes.ReplaceAll(raw, []byte(`{"model":"x"}{"model":"y"}`), []byte(`{"model":"x"}             `)))
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "sizes")
		s := New(NDJSON, []byte(replacement))
		if got, want := run(s, raw, sizes), replace(raw, spans, replacement); !bytes.Equal(got, want) {
			t.Fatalf("\n got %q\nwant %q\nfrom %q", got, want, raw)
		}
		if s.Seen().Done != done {
			t.Fatalf("done is %v in %q", s.Seen().Done, raw)
		}
	})
}

// FuzzSplice holds for any bytes: no panic, the chunking does not show, an observer changes nothing, and a body without "model" is untouched.
func FuzzSplice(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}`,
		"data: {\"model\":\"m\"}\n\ndata: [DONE]\n\n",
		"data:{\"response\":{\"model\":\"m\\\"x\"}}\r\n\r\n",
		": ping\r\revent: error\rdata: {\r data: \"model\":\"m\"}\r\r",
		"data: {\"model\":\"cut",
		"{\"model\":\"m\",\"done\":false}\n\r\n{\"model\":\"cut\n{\"done\":true}",
		"{\"model\":\"" + strings.Repeat("x", MaxModelBytes) + "\"}",
	} {
		for _, format := range []Format{JSON, SSE, NDJSON} {
			f.Add([]byte(seed), uint8(3), uint8(format))
			f.Add([]byte(seed), uint8(1), uint8(format))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, size, kind uint8) {
		format := Format(kind % 3)
		whole, parts := New(format, []byte(replacement)), New(format, []byte(replacement))
		one := run(whole, body, []int{len(body) + 1})
		many := run(parts, body, []int{int(size%16) + 1, 1, 7})
		require.Equal(t, string(one), string(many))
		require.Equal(t, whole.Seen(), parts.Seen())
		require.Equal(t, whole.Terminator(), parts.Terminator())
		watch := New(format, nil)
		require.Equal(t, string(body), string(run(watch, body, []int{5})))
		require.Equal(t, whole.Seen(), watch.Seen())
		if !bytes.Contains(body, []byte("mod")) && !bytes.Contains(body, []byte(`\u`)) {
			require.Equal(t, string(body), string(one))
		}
		if format == SSE {
			checkEvents(t, body, string(one), int(size))
		}
		if format == JSON && json.Valid(body) {
			require.Equal(t, string(replace(body, referenceJSON(body, false), replacement)), string(one))
		}
	})
}

// checkEvents holds what came of a stream against a parser that looks at whole events, and against what may be put into it.
func checkEvents(t *testing.T, body []byte, out string, cut int) {
	splicable := !bytes.HasPrefix(body, bom) // which the reference does not know
	for _, data := range events(string(body) + "\n\n") {
		splicable = splicable && (json.Valid([]byte(data)) || !strings.Contains(data, "mod") && !strings.Contains(data, `\u`))
	}
	if splicable {
		require.Equal(t, string(replace(body, referenceSSE(body), replacement)), out)
	}
	cut = min(cut, len(body))
	s := New(SSE, []byte(replacement))
	before := string(s.Append(nil, body[:cut]))
	read := events(before + s.Terminator() + "data: lost\n\n")
	require.Equal(t, "lost", read[len(read)-1], "an error event is one of its own")
	if between, rest := s.BetweenEvents(), body[cut:]; between {
		after := string(s.Close(s.Append(nil, rest)))
		require.Equal(t, events(before+after), events(before+": keep-alive\n\n"+after), "a comment is no part of an event")
	}
}

var sink []byte

func BenchmarkSplice(b *testing.B) {
	event := `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" 98"}}],"created":1796048813,"id":"chatcmpl-pLoNMUmdjiFkRHyRIRFh1sAubm5kN0Gk","model":"count","system_fingerprint":"b1-80fb11a","object":"chat.completion.chunk"}` + "\n\n"
	long := `{"id":"x","model":"m","choices":[{"message":{"content":"` + strings.Repeat("some words of prose, and a \\\"quote\\\" now and then; ", 4000) + `"}}]}`
	var numbers strings.Builder
	numbers.WriteString(`{"object":"list","model":"m","data":[{"embedding":[`)
	for i := range 20000 {
		fmt.Fprintf(&numbers, "0.0%d,", i*7919)
	}
	numbers.WriteString("0]}]}")
	for _, c := range []struct {
		name   string
		format Format
		body   string
		chunk  int
	}{
		{"sse_event", SSE, event, len(event)},
		{"sse_16KiB_of_events", SSE, strings.Repeat(event, 70), 16 << 10},
		{"sse_2MiB_line", SSE, "data: " + `{"x":"` + strings.Repeat("y", 2<<20) + `","model":"m"}` + "\n\n", 16 << 10},
		{"ndjson_line", NDJSON, `{"model":"count","created_at":"2026-11-30T14:28:58.237868457Z","message":{"role":"assistant","content":" 98"},"done":false}` + "\n", 125},
		{"ndjson_2MiB_line", NDJSON, `{"x":"` + strings.Repeat("y", 2<<20) + `","model":"m"}` + "\n", 16 << 10},
		{"json_prose", JSON, long, 256 << 10},
		{"json_numbers", JSON, numbers.String(), 256 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(c.body)
			model := []byte(replacement)
			s := New(c.format, model)
			sink = make([]byte, 0, c.chunk+1024)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				s.Reset(c.format, model)
				for rest := body; len(rest) > 0; {
					n := min(c.chunk, len(rest))
					sink = s.Append(sink[:0], rest[:n])
					rest = rest[n:]
				}
			}
		})
	}
}
