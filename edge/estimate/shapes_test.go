package estimate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/estimate/corpus"
)

// shapes are bodies with one text in every place where an API takes one; n is how many times it stands there. In a quoted place it is a string inside JSON
// that is itself a string.
var shapes = []struct {
	name, body string
	n          int
}{
	{"chat string", `{"model":"m","messages":[{"role":"system","content":%s},{"role":"user","content":%s}]}`, 2},
	{"chat developer and tool", `{"model":"m","messages":[{"role":"developer","content":%s},{"role":"tool","tool_call_id":"c1","content":%s}]}`, 2},
	{"chat parts", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":%s},{"type":"text","text":%s}]}]}`, 2},
	{"chat tool call", `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":%s}}]}]}`, 1},
	{"chat refusal and name", `{"model":"m","messages":[{"role":"assistant","name":"a","refusal":%s,"content":""}]}`, 1},
	{"chat reasoning history", `{"model":"m","messages":[{"role":"assistant","reasoning_content":%s,"content":%s}]}`, 2},
	{"chat tool schema", `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","description":%s,"parameters":{"type":"object","properties":{"a":{"type":"string","description":%s}}}}}]}`, 2},
	{"chat response format", `{"model":"m","messages":[],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","description":%s}}}}`, 1},
	{"chat metadata", `{"model":"m","messages":[],"metadata":{"note":%s}}`, 1},
	{"responses string", `{"model":"m","instructions":%s,"input":%s}`, 2},
	{"responses items", `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":%s}]},{"type":"function_call","call_id":"c","name":"f","arguments":%s},{"type":"function_call_output","call_id":"c","output":%s}]}`, 3},
	{"responses reasoning history", `{"model":"m","input":[{"type":"reasoning","summary":[{"type":"summary_text","text":%s}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":%s}]}]}`, 2},
	{"responses tool", `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","description":%s,"parameters":{"type":"object"}}]}`, 1},
	{"completions", `{"model":"m","prompt":%s,"suffix":%s,"n":4,"best_of":8}`, 2},
	{"completions batch", `{"model":"m","prompt":[%s,%s]}`, 2},
	{"embeddings", `{"model":"m","input":%s,"dimensions":256}`, 1},
	{"embeddings batch", `{"model":"m","input":[%s,%s,%s]}`, 3},
	{"messages", `{"model":"m","max_tokens":9,"system":%s,"messages":[{"role":"user","content":%s}]}`, 2},
	{"messages blocks", `{"model":"m","system":[{"type":"text","text":%s}],"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":%s,"signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{"path":%s}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":%s}]}]}]}`, 4},
	{"ollama chat", `{"model":"m","messages":[{"role":"system","content":%s},{"role":"assistant","content":"","thinking":%s,"tool_calls":[{"function":{"name":"f","arguments":{"path":%s}}}]},{"role":"tool","tool_name":"f","content":%s}],"options":{"num_ctx":4096}}`, 4},
	{"ollama generate", `{"model":"m","prompt":%s,"suffix":%s,"system":%s,"template":%s,"keep_alive":"5m"}`, 4},
	{"ollama embed", `{"model":"m","input":[%s,%s]}`, 2},
	{"messages tool", `{"model":"m","messages":[],"tools":[{"name":"f","description":%s,"input_schema":{"type":"object"}}]}`, 1},
}

// TestL04_EveryShapeOfBodyIsCounted: wherever a text stands that becomes prompt, the estimate is at least what tokenizers make of it, and near it.
func TestL04_EveryShapeOfBodyIsCounted(t *testing.T) {
	kinds, counter := judges(t)
	for _, kind := range kinds {
		if kind.Name != "prose eng" && kind.Name != "prose kor" && kind.Name != "code go" && kind.Name != "json minified" {
			continue
		}
		text := strings.Join(kind.Samples(3, 5), "")
		truth, err := counter.Tokens(text)
		require.NoError(t, err)
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		for _, shape := range shapes {
			body := []byte(strings.ReplaceAll(shape.body, "%s", string(quoted)))
			require.True(t, json.Valid(body), shape.name)
			ratio := float64(estimate.Of(body).Tokens()) / float64(shape.n*truth)
			assert.GreaterOrEqual(t, ratio, 1.0, "%s in %s", kind.Name, shape.name)
			assert.LessOrEqual(t, ratio, 2.0, "%s in %s", kind.Name, shape.name)
			assert.False(t, estimate.Of(body).Foreign, shape.name)
		}
	}
}

// bodies has one of each kind of text, and some that are hard on a scanner.
func bodies(tb testing.TB, size int) map[string][]byte {
	kinds, err := corpus.Kinds()
	require.NoError(tb, err)
	bodies := map[string][]byte{
		"hard nesting":      []byte(strings.Repeat(`{"a":[`, size/12) + strings.Repeat(`]}`, size/6)),
		"hard brackets":     []byte(strings.Repeat("[", size)),
		"hard backslashes":  []byte(`{"messages":"` + strings.Repeat(`\\`, size/2) + `"}`),
		"hard quotes":       []byte(`{"messages":"` + strings.Repeat(`\"`, size/2) + `"}`),
		"hard open quote":   []byte(`{"image_url":"data:image/png,` + strings.Repeat(`\"`, size/2)),
		"hard empty quotes": []byte(strings.Repeat(`"`, size)),
		"hard surrogates":   []byte(`{"messages":"` + strings.Repeat(`\ud83d\ude00`, size/12) + `"}`),
		"hard half escapes": []byte(`{"messages":"` + strings.Repeat(`\ud83d`, size/6) + `"}`),
		"hard images":       []byte(`[` + strings.Repeat(`{"image_url":"data:image/jpeg;base64,/9j/4AAQ"},`, size/48) + `0]`),
		"hard addresses":    []byte(`[` + strings.Repeat(`{"image_url":"http`+strings.Repeat("x", 9000)+`"},`, size/9022+1) + `0]`),
		"hard segments":     []byte(`{"image_url":"data:image/jpeg;base64,/9j/` + strings.Repeat("/gAC", size/4) + `"}`),
		"token ids":         []byte(`{"input":[[` + strings.Repeat("1234,", size/5) + `0]]}`),
		"spaces":            []byte(strings.Repeat(" ", size)),
	}
	var keys strings.Builder
	for i := 0; keys.Len() < size; i++ {
		fmt.Fprintf(&keys, `"k%d":%d,`, i, i)
	}
	bodies["hard keys"] = []byte(`{` + keys.String() + `"z":0}`)
	for _, kind := range kinds {
		text := strings.Join(kind.Samples(min(size/4096, 256), 9), "")
		bodies[kind.Name] = chat(strings.Repeat(text, size/len(text)+1))
	}
	return bodies
}

func TestNoBodyCostsAnAllocation(t *testing.T) {
	calibration, targets := estimate.NewCalibration(), []string{"one", "two"}
	for name, body := range bodies(t, 16<<10) {
		require.Zero(t, testing.AllocsPerRun(3, func() { calibration.Input(body, targets, 100000) }), name)
	}
}

// BenchmarkKinds has every kind of text and every hard body in two sizes: what is linear costs the same per byte in both.
func BenchmarkKinds(b *testing.B) {
	for _, size := range []int{1 << 20, 16 << 20} {
		for name, body := range bodies(b, size) {
			b.Run(fmt.Sprintf("%s/%dMiB", name, size>>20), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					estimate.Of(body)
				}
			})
		}
	}
}
