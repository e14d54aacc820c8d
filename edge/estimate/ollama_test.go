package estimate

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCase_D05_RawPicturesOfOllama: its pictures are base64 without the head of a data URL, in arrays beside the text.
func TestCase_D05_RawPicturesOfOllama(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewGray(image.Rect(0, 0, 1000, 800))))
	picture := base64.StdEncoding.EncodeToString(file.Bytes())
	large := "/9j/" + base64.StdEncoding.EncodeToString(randomBytes(1500000))
	for body, want := range map[string]int{
		`{"model":"m","messages":[{"role":"user","content":"What is this?","images":["` + picture + `"]}]}`:                                   36 * 29,
		`{"model":"m","messages":[{"role":"user","images": [ "` + picture + `" , "` + large + `" ],"content":"x"},{"role":"user"}]}`:          36*29 + ImageTokens,
		`{"model":"m","prompt":"What is this?","images":["` + strings.ReplaceAll(large, "/", `\/`) + `","` + large + `"],"keep_alive":"10m"}`: 2 * ImageTokens,
	} {
		e := Of([]byte(body))
		require.Equal(t, want, e.Fixed)
		require.Less(t, e.Text, 100)
		require.True(t, e.Foreign, "what Ollama counts for it teaches nothing about text")
	}
	text := strings.Repeat("no picture, whatever the key says ", 20000)
	requireLong(t, []byte(`{"messages":[{"role":"user","images":["`+text+`"]}]}`))
	requireLong(t, []byte(`{"messages":[{"role":"user","images":{"caption":"iVBOR`+text+`"}}]}`))
	requireLong(t, []byte(`{"messages":[{"role":"user","content":"/9j/`+text+`"}],"images":[]}`))
}

func TestL04_OllamaContextIsTokenIDs(t *testing.T) {
	require.Equal(t, 4, Of([]byte(`{"model":"m","prompt":"go on","context":[4,331,343,349]}`)).Fixed)
	require.Zero(t, Of([]byte(`{"messages":[{"context":[4,331]}]}`)).Fixed)
	requireLong(t, []byte(`{"prompt":"go on","context":[`+strings.Repeat("100257,", 99999)+`1]}`))
}

func TestL04_OllamaSettingsAreNotCounted(t *testing.T) {
	const rest = `"messages":[{"role":"user","content":"hi"}]}`
	plain := Of([]byte(`{` + rest))
	for _, setting := range []string{`"options":{"num_ctx":131072,"stop":["a","b"],"num_predict":-1}`, `"think":"high"`, `"keep_alive":-1`, `"raw":true`, `"truncate":false`} {
		require.Equal(t, plain.Text, Of([]byte(`{`+setting+`,`+rest)).Text, setting)
	}
	require.Greater(t, Of([]byte(`{"system":"be brief","template":"{{ .Prompt }}",`+rest)).Text, plain.Text)
}
