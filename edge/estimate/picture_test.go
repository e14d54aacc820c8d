package estimate

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pictureBody is a request with that file as its picture.
func pictureBody(file []byte) []byte {
	return fmt.Appendf(nil, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, base64.StdEncoding.EncodeToString(file))
}

func TestCase_D05_PicturesCostByTheirSize(t *testing.T) {
	encode := func(name string, width, height int) []byte {
		img := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black, color.White})
		var b bytes.Buffer
		switch name {
		case "png":
			require.NoError(t, png.Encode(&b, img))
		case "jpeg":
			require.NoError(t, jpeg.Encode(&b, img, nil))
		case "jpeg with exif":
			require.NoError(t, jpeg.Encode(&b, img, nil))
			exif := append([]byte{0xff, 0xe1, 0x9c, 0x42}, make([]byte, 0x9c40)...)
			return append(append([]byte{0xff, 0xd8}, exif...), b.Bytes()[2:]...)
		case "gif":
			require.NoError(t, gif.Encode(&b, img, nil))
		case "webp lossy":
			b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a")
			b.Write([]byte{byte(width), byte(width >> 8), byte(height), byte(height >> 8)})
		case "webp lossless":
			b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f")
			n := uint32(width-1) | uint32(height-1)<<14
			b.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 0, 0, 0, 0, 0})
		case "webp extended":
			b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00")
			b.Write([]byte{byte(width - 1), byte((width - 1) >> 8), 0, byte(height - 1), byte((height - 1) >> 8), 0, 0, 0, 0})
		}
		return b.Bytes()
	}
	for _, name := range []string{"png", "jpeg", "jpeg with exif", "gif", "webp lossy", "webp lossless", "webp extended"} {
		for _, size := range []struct{ width, height, tokens int }{
			{1000, 800, 36 * 29}, {16, 16, leastImageTokens}, {5000, 6000, mostImageTokens},
		} {
			if size.width == 5000 && !strings.HasPrefix(name, "webp") {
				continue // takes long to make
			}
			e := Of(pictureBody(encode(name, size.width, size.height)))
			require.Equal(t, size.tokens, e.Fixed, "%s of %d×%d", name, size.width, size.height)
			require.True(t, e.Foreign)
			require.Less(t, e.Text, 60)
		}
	}
	whole := encode("png", 1000, 800)
	escaped := strings.ReplaceAll(string(pictureBody(encode("jpeg", 1000, 800))), "/", `\/`)
	require.Equal(t, 36*29, Of([]byte(escaped)).Fixed, "slashes may be escaped")
	for name, file := range map[string][]byte{
		"cut off": whole[:18], "no picture": []byte("a text that is no picture at all, but long enough"), "empty": nil, "endless head": append([]byte{0xff, 0xd8}, bytes.Repeat([]byte{0xff, 0xe1, 0xff, 0xff}, 40000)...),
	} {
		require.Equal(t, ImageTokens, Of(pictureBody(file)).Fixed, name)
	}
}

func TestL04_TokenIDsCountOneEach(t *testing.T) {
	for body, want := range map[string]int{
		`{"input":[1,2,3]}`:                                 3,
		`{"input": [ 128000 , 2 , 3 ] }`:                    3,
		`{"input":[[101,7592,102],[101,102]]}`:              5,
		`{"prompt":[100257, 100258]}`:                       2,
		`{"model":"m","prompt":[[1],[22,333]],"n":2}`:       3,
		`{"input":["12 34","5"]}`:                           0,
		`{"input":[{"role":"user","content":"1","n":[1]}]}`: 0,
		`{"messages":[1,2,3]}`:                              0,
		`{"tools":[{"input":[1,2,3]}]}`:                     0,
		`{"input":5}`:                                       0,
	} {
		require.Equal(t, want, Of([]byte(body)).Fixed, body)
	}
	ids := `{"input":[` + strings.Repeat("100257,", 99900) + `1]}`
	requireNormal(t, []byte(ids))
	requireLong(t, []byte(strings.Replace(ids, "1]}", strings.Repeat("1,", 100)+"1]}", 1)))
}
