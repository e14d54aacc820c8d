package bodyscan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScan_Accepts(t *testing.T) {
	for _, c := range []struct {
		name, body, model, raw string
		stream                 bool
	}{
		{"plain", `{"model":"m"}`, "m", `"m"`, false},
		{"stream", `{"stream":true,"model":"m"}`, "m", `"m"`, true},
		{"stream null", "{ \"stream\" : null ,\n\"model\"\t:\r \"m\" } \n", "m", `"m"`, false},
		{"escaped key and value", `{"mod\u0065l":"a\/b\u00e9"}`, "a/bé", `"a\/b\u00e9"`, false},
		{"model deeper is none of ours", `{"x":{"model":1,"Model":2},"y":[{"model":[]}],"model":"m"}`, "m", `"m"`, false},
		{"E01 unknown fields", `{"model":"m","chat_template_kwargs":{"a":[1,2.5e-3,-0]},"top_k":40,"x":{"y":{"z":null}}}`, "m", `"m"`, false},
		{"E02 large integers", `{"model":"m","seed":9007199254740993}`, "m", `"m"`, false},
		{"E08 null content", `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[]}]}`, "m", `"m"`, false},
		{"E14 messages of any shape are the provider's to judge", `{"messages":"x","model":"m"}`, "m", `"m"`, false},
		{"lone surrogates are grammar", `{"model":"m","x":"\ud800"}`, "m", `"m"`, false},
		{"deep enough", `{"model":"m","x":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + `}`, "m", `"m"`, false},
		{"non-ASCII", `{"model":"한국어-모델","x":"🎉"}`, "한국어-모델", `"한국어-모델"`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Scan([]byte(c.body))
			require.NoError(t, err)
			require.Equal(t, c.model, f.Model)
			require.Equal(t, c.raw, c.body[f.ModelStart:f.ModelEnd])
			require.Equal(t, c.stream, f.Stream)
		})
	}
}

func TestScan_Refuses(t *testing.T) {
	for _, c := range []struct{ name, body, says string }{
		{"empty", ``, "empty"},
		{"spaces", " \n", "empty"},
		{"null", `null`, "must be a JSON object"},
		{"array", `[{"model":"m"}]`, "must be a JSON object"},
		{"byte order mark", "\ufeff{\"model\":\"m\"}", "byte order mark"},
		{"no model", `{"messages":[]}`, `no "model"`},
		{"model null", `{"model":null}`, "must be a string"},
		{"model number", `{"model":1}`, "must be a string"},
		{"model array", `{"model":["m"]}`, "must be a string"},
		{"model empty", `{"model":""}`, "must not be empty"},
		{"model with NUL", `{"model":"m\u0000"}`, "control characters"},
		{"duplicate", `{"model":"a","model":"b"}`, "more than one"},
		{"duplicate in escapes", `{"model":"a","\u006dodel":"b"}`, "more than one"},
		{"case variant", `{"model":"a","Model":"b"}`, "case"},
		{"case variant alone", `{"MODEL":"b"}`, "case"},
		{"case variant in escapes", `{"\u004dodel":"b"}`, "case"},
		{"stream string", `{"model":"m","stream":"true"}`, `"stream" must be`},
		{"stream number", `{"model":"m","stream":1}`, `"stream" must be`},
		{"trailing data", `{"model":"m"} {}`, "follows"},
		{"trailing NUL", "{\"model\":\"m\"}\x00", "follows"},
		{"NUL in a string", "{\"model\":\"m\",\"x\":\"a\x00b\"}", "control character"},
		{"line end in a string", "{\"model\":\"m\",\"x\":\"a\nb\"}", "control character"},
		{"invalid UTF-8", "{\"model\":\"m\",\"x\":\"\xff\"}", "UTF-8"},
		{"surrogate as UTF-8", "{\"model\":\"m\",\"x\":\"\xed\xa0\x80\"}", "UTF-8"},
		{"too deep", `{"model":"m","x":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`, "nested deeper"},
		{"very deep and open", strings.Repeat(`{"a":`, 1<<20), "nested deeper"},
		{"cut", `{"model":"m`, "ends inside a string"},
		{"cut after escape", `{"model":"m\`, "ends inside a string"},
		{"cut after value", `{"model":"m"`, "ends too early"},
		{"comma before end", `{"model":"m",}`, "key"},
		{"comma in array", `{"model":"m","x":[1,]}`, "no value"},
		{"single quotes", `{'model':'m'}`, "key"},
		{"comment", `{"model":"m"/*x*/}`, "comma"},
		{"NaN", `{"model":"m","x":NaN}`, "no value"},
		{"leading zero", `{"model":"m","x":01}`, "comma"},
		{"bare minus", `{"model":"m","x":-}`, "number"},
		{"no fraction", `{"model":"m","x":1.}`, "number"},
		{"no exponent", `{"model":"m","x":1e}`, "number"},
		{"wrong escape", `{"model":"m","x":"\x"}`, "escape"},
		{"wrong \\u", `{"model":"m","x":"\u12g4"}`, "escape"},
		{"wrong bracket", `{"model":"m","x":[1}}`, "missing"},
		{"no colon", `{"model" "m"}`, "colon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Scan([]byte(c.body))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Message, c.says)
		})
	}
}

// FuzzScan: what is accepted is JSON to encoding/json too and means the same there; what is refused is no JSON, or has a fault of the contract's.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"model":"m","stream":true}`, `{"Model":1}`, `{"model":"\ud800\u0000"}`, `{"a":[{},[],"",0.1e+5,-0],"model":"x"}`, "{\"model\":\"\xff\"}", `{"model":"m"}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields, err := Scan(body)
		if err != nil {
			if strings.Contains(err.Error(), "not valid JSON") && !strings.Contains(err.Error(), "UTF-8") {
				require.False(t, json.Valid(body), "%q: %s", body, err)
			}
			return
		}
		require.True(t, json.Valid(body))
		var whole map[string]any
		require.NoError(t, json.Unmarshal(body, &whole))
		require.Equal(t, whole["model"], fields.Model)
		if stream, ok := whole["stream"].(bool); ok {
			require.Equal(t, stream, fields.Stream)
		}
		var again string
		require.NoError(t, json.Unmarshal(body[fields.ModelStart:fields.ModelEnd], &again))
		require.Equal(t, fields.Model, again)
	})
}

func BenchmarkScan(b *testing.B) {
	for name, body := range map[string]string{
		"1KiB":  `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("words and more ", 64) + `"}],"stream":true}`,
		"1MiB":  `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("words and more\\n ", 64<<10) + `"}]}`,
		"tools": `{"model":"m","tools":[` + strings.Repeat(`{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},`, 1000) + `null]}`,
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(body)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Scan(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
