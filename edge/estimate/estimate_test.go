package estimate

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
)

const threshold = 100000

// Tokens is the estimate of a body by the price table.
func Tokens(body []byte) int { return Of(body).Tokens() }

func user(content string) []byte {
	quoted, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return []byte(`{"model":"m","messages":[{"role":"user","content":` + string(quoted) + `}]}`)
}

func randomBytes(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func requireLong(t *testing.T, body []byte) {
	t.Helper()
	require.Equal(t, admission.Long, NewCalibration().Input(body, nil, threshold).Class(), "estimate %d", Tokens(body))
}

func requireNormal(t *testing.T, body []byte) {
	t.Helper()
	require.Equal(t, admission.Normal, NewCalibration().Input(body, nil, threshold).Class(), "estimate %d", Tokens(body))
}

func TestL04_ClassByTheInputAlone(t *testing.T) {
	prose := strings.Repeat("Explain how the gate keeps two long prompts apart. ", 8000) // 400 kB, about 100k tokens in English
	requireLong(t, user(prose))
	small := user("Explain in two sentences what a lease is.")
	requireNormal(t, small)
	require.Less(t, Tokens(small), 60)

	long, _ := json.Marshal(prose)
	for _, where := range []string{
		`{"messages":[{"role":"system","content":%s}]}`,
		`{"messages":[{"role":"developer","content":%s}]}`,
		`{"messages":[{"role":"assistant","content":%s}]}`,
		`{"messages":[{"role":"tool","tool_call_id":"1","content":%s}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":%s}]}]}`,
		`{"messages":[],"tools":[{"type":"function","function":{"name":"f","description":%s}}]}`,
		`{"messages":[],"metadata":{"note":%s}}`,
		`{"input":%s}`,
		`{"prompt":%s}`,
		`{"system":%s,"messages":[]}`,
		`{"max_tokens":5,"messages":[{"role":"user","content":%s}],"stream":true}`,
	} {
		requireLong(t, fmt.Appendf(nil, where, long))
	}
}

func TestL04_OutputLengthAndThinkingAreNotCounted(t *testing.T) {
	plain := Tokens([]byte(`{"messages":[{"role":"user","content":"hi"}]}`))
	for _, setting := range []string{
		`"max_tokens":200000`, `"max_completion_tokens":999999999`, `"max_output_tokens":1`, `"thinking":{"type":"enabled","budget_tokens":120000}`,
		`"reasoning":{"effort":"high","max_tokens":120000}`, `"temperature":0.30000000000000004`, `"logit_bias":{"50256":-100,"1":2}`, `"stop":["a","b"]`, `"stream":true`,
	} {
		require.Equal(t, plain, Tokens([]byte(`{`+setting+`,"messages":[{"role":"user","content":"hi"}]}`)), setting)
		require.Equal(t, plain, Tokens([]byte(`{"messages":[{"role":"user","content":"hi"}],`+setting+`}`)), setting)
	}
	require.Greater(t, Tokens([]byte(`{"messages":[{"role":"user","content":"hi","max_tokens":200000}]}`)), plain, "only top-level settings are left out")
}

func TestCase_D01_HangulHanKana(t *testing.T) {
	for name, letter := range map[string]string{"hangul": "한", "han": "漢", "kana": "か"} {
		t.Run(name, func(t *testing.T) {
			body := user(strings.Repeat(letter, 150000))
			requireLong(t, body)
			escaped := strings.Repeat(fmt.Sprintf(`\u%04x`, []rune(letter)[0]), 150000)
			require.Equal(t, Tokens(body), Tokens([]byte(`{"model":"m","messages":[{"role":"user","content":"`+escaped+`"}]}`)), "spelt as escapes it costs the same")
		})
	}
}

func TestCase_D04_DenseText(t *testing.T) {
	raw := randomBytes(225000)
	var dense strings.Builder
	for i := 0; dense.Len() < 300000; i++ {
		fmt.Fprintf(&dense, `{"id":%d,"k":"v%d","ok":true},`, i*7919, i)
	}
	for name, content := range map[string]string{
		"hex":           hex.EncodeToString(raw)[:300000],
		"base64":        base64.StdEncoding.EncodeToString(raw)[:300000],
		"base64url":     base64.URLEncoding.EncodeToString(raw)[:300000],
		"minified json": dense.String(),
	} {
		t.Run(name, func(t *testing.T) {
			tokens := Tokens(user(content))
			require.GreaterOrEqual(t, tokens, len(content)/2)
			require.LessOrEqual(t, tokens, len(content))
			require.GreaterOrEqual(t, tokens, threshold)
		})
	}
}

func TestCase_D05_ImagesHaveAPriceEach(t *testing.T) {
	image := base64.StdEncoding.EncodeToString(randomBytes(1500000))
	png := "iVBOR" + image
	for name, part := range map[string]string{
		"image_url object": `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}`,
		"detail first":     `{"type":"image_url","image_url":{"detail":"high","url":"data:image/png;base64,` + image + `"}}`,
		"escaped slash":    `{"type":"image_url","image_url":{"url":"data:image\/png;base64,` + image + `"}}`,
		"image_url string": `{"type":"input_image","image_url":"data:image/jpeg;base64,` + image + `"}`,
		"address":          `{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}`,
		"source data":      `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			tokens := Tokens([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},` + part + `]}]}`))
			require.GreaterOrEqual(t, tokens, ImageTokens)
			require.Less(t, tokens, ImageTokens+200)
		})
	}
	image = image[:300000]
	requireLong(t, user("data:image/png;base64,"+image)) // in the text of a message it is text
	requireLong(t, []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"data:image/png;base64,`+image+`"}]}]}`))
	requireLong(t, []byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"`+strings.Repeat("no address ", 40000)+`"}}]}]}`))
	requireLong(t, []byte(`{"messages":[{"role":"user","content":[{"type":"document","source":{"data":"JVBER`+image+`"}}]}]}`)) // a document's text becomes prompt
}

func TestCase_D05_AudioAndVideoAreNoText(t *testing.T) {
	media := base64.StdEncoding.EncodeToString(randomBytes(1500000))
	for name, part := range map[string]string{
		"audio":         `{"type":"input_audio","input_audio":{"data":"` + media + `","format":"wav"}}`,
		"video":         `{"type":"video_url","video_url":{"url":"data:video/mp4;base64,` + media + `"}}`,
		"video address": `{"type":"video_url","video_url":{"url":"https://example.org/a.mp4"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			tokens := Tokens([]byte(`{"messages":[{"role":"user","content":[` + part + `]}]}`))
			require.GreaterOrEqual(t, tokens, mediaTokens)
			require.Less(t, tokens, 20000)
		})
	}
	requireLong(t, []byte(`{"messages":[{"role":"user","content":[{"type":"x","data":"`+media[:300000]+`"}]}]}`)) // no place for media
}

func TestEscapesCostWhatTheyStandFor(t *testing.T) {
	for escaped, plain := range map[string]string{`\u0041`: "A", `\u00e9`: "é", `\u0e01`: "ก", `\ud55c`: "한", `\ud83d\ude00`: "😀", `\u2014`: "—", `\u2764`: "❤"} {
		of := func(s string) int { return Tokens([]byte(`{"messages":"` + strings.Repeat(s, 500) + `"}`)) }
		require.Equal(t, of(plain), of(escaped), escaped)
	}
}

// Eight bytes at a time come to the same as one by one, wherever escapes stand.
func TestTextIsPricedByteByByte(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		content := make([]rune, r.IntN(40))
		for i := range content {
			content[i] = []rune("ab12\"\\\n\t<é한😀")[r.IntN(12)]
		}
		quoted, err := json.Marshal(string(content))
		require.NoError(t, err)
		want, last := 0, byte('"')
		for _, c := range []byte(string(content) + `"`) {
			want += price(last, c)
			last = c
		}
		got, next := text(quoted, 1)
		require.Equal(t, want, got, "%q", quoted)
		require.Equal(t, len(quoted), next)
	}
}

func TestCase_D07_ToolSchemasCount(t *testing.T) {
	var tools strings.Builder
	for i := 0; tools.Len() < 600000; i++ {
		fmt.Fprintf(&tools, `,{"type":"function","function":{"name":"f%d","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}`, i)
	}
	requireLong(t, []byte(`{"messages":[{"role":"user","content":"hi"}],"tools":[`+tools.String()[1:]+`]}`))
}

func TestCase_D08_ToolCallArgumentsCount(t *testing.T) {
	requireLong(t, []byte(`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"`+
		strings.Repeat(`{\"line\":\"some text\"}`, 500000/22)+`"}}]},{"role":"tool","tool_call_id":"1","content":"ok"}]}`))
}

func TestCase_D11_EverySchemaKeywordCounts(t *testing.T) {
	for _, keyword := range []string{"anyOf", "oneOf", "default", "title", "examples", "$defs", "enum"} {
		bulk := strings.Repeat(`{"const":"a value of some length","title":"A title"},`, 8000)
		requireLong(t, []byte(`{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"`+keyword+`":[`+bulk+`null]}}}]}`))
	}
}

func TestCase_D18_Emoji(t *testing.T) {
	require.GreaterOrEqual(t, Tokens(user(strings.Repeat("😀", 60000))), 120000)
	require.GreaterOrEqual(t, Tokens(user(strings.Repeat("👨‍👩‍👧‍👦", 15000))), 120000)
	require.GreaterOrEqual(t, Tokens(user(strings.Repeat("☀", 60000))), 120000)
	require.GreaterOrEqual(t, Tokens([]byte(`{"messages":[{"content":"`+strings.Repeat(`\ud83d\ude00`, 60000)+`"}]}`)), 120000)
}

func TestCase_D20_NumbersAreCountedFromTheRawBytes(t *testing.T) {
	body := `{"messages":[],"tools":[{"function":{"parameters":{"enum":[` + strings.Repeat("0.30000000000000004,", 20000) + `1]}}}]}`
	require.GreaterOrEqual(t, Tokens([]byte(body)), 20000*9)
}

func TestNoAllocations(t *testing.T) {
	body := user(strings.Repeat(`text 한 "quoted" 12 `, 1000))
	require.Zero(t, testing.AllocsPerRun(20, func() { Tokens(body) }))
}

// FuzzTokens: any bytes end and give a number within the price table.
func FuzzTokens(f *testing.F) {
	for _, seed := range []string{`{"messages":[{"role":"user","content":"hi \u00e9\n"}]}`, `{"image_url":{"url":"data:image/png;base64,xx"}}`, `{"a":"\`, `}}]],,"`, strings.Repeat(`[`, 100) + `"x"`, "\"\\u12"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		n := Tokens(body)
		if n < baseTokens || n > baseTokens+(len(body)+1)*(ImageTokens+4) {
			t.Fatalf("%d tokens for %d bytes", n, len(body))
		}
	})
}

func BenchmarkTokens(b *testing.B) {
	for name, body := range map[string][]byte{
		"prose":  user(strings.Repeat("Explain how the gate keeps two long prompts apart.\n", 20000)),
		"hangul": user(strings.Repeat("두 개의 긴 프롬프트. ", 20000)),
		"code":   user(strings.Repeat("\tif x := f(\"a\"); x != nil {\n\t\treturn x\n\t}\n", 20000)),
		"tools":  []byte(`{"tools":[` + strings.Repeat(`{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},`, 10000) + `null]}`),
		"1KiB":   user(strings.Repeat("twenty characters x ", 50)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				Tokens(body)
			}
		})
	}
}
