package bodyscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// part is a part of a form with boundary B.
func part(disposition, content string) string {
	return "--B\r\nContent-Disposition: " + disposition + "\r\n\r\n" + content + "\r\n"
}

const (
	sound = `form-data; name="file"; filename="a.wav"`
	model = `form-data; name="model"`
)

func TestScanForm_Accepts(t *testing.T) {
	for name, c := range map[string]struct{ body, model string }{
		"the model first":                      {part(model, "m") + part(sound, "RIFF") + "--B--\r\n", "m"},
		"the model last, no line end behind":   {part(sound, "RIFF\x00\xff\r\n\r\n") + part(model, "org/name:tag") + "--B--", "org/name:tag"},
		"an unquoted name":                     {part("form-data; name=model", "m") + "--B--", "m"},
		"names of fields in any case":          {"--B\r\ncontent-disposition:FORM-DATA;NAME=\"model\"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nm\r\n--B--", "m"},
		"an empty file":                        {part(sound, "") + part(model, "m") + "--B--", "m"},
		"a file that is empty but for nothing": {"--B\r\nContent-Disposition: " + sound + "\r\n\r\n--B\r\nContent-Disposition: " + model + "\r\n\r\nm\r\n--B--", "m"},
		"a preamble and an epilogue":           {"for old readers\r\n" + part(model, "m") + "--B--\r\nthe end", "m"},
		"padding":                              {"--B \t\r\nContent-Disposition: " + model + "\r\n\r\nm\r\n--B\t\r\nContent-Disposition: " + sound + "\r\n\r\n\r\n--B--  ", "m"},
		"a longer word at a line's beginning":  {part(sound, "x\r\n--BX\r\nContent-Disposition: "+model+"\r\n\r\nevil\r\n--B-\r\n") + part(model, "m") + "--B--", "m"},
		"a boundary inside a line":             {part(sound, "x --B\r\nContent-Disposition: "+model+"\r\n\r\nevil") + part(model, "m") + "--B--", "m"},
		"another boundary inside a file":       {part(sound, "\r\n--C\r\nContent-Disposition: "+model+"\r\n\r\nevil\r\n--C--") + part(model, "m") + "--B--", "m"},
		"a quote in a file's name":             {part(`form-data; name="file"; filename="a\"; name=\"model.wav"`, "x") + part(model, "m") + "--B--", "m"},
		"a file's name in another script":      {part(`form-data; name="file"; filename="?.wav"; filename*=UTF-8''%ED%95%9C.wav`, "x") + part(model, "m") + "--B--", "m"},
		"several fields of a name":             {part(`form-data; name="timestamp_granularities[]"`, "word") + part(`form-data; name="timestamp_granularities[]"`, "segment") + part(model, "한") + "--B--", "한"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ScanForm([]byte(c.body), "B")
			require.NoError(t, err)
			require.Equal(t, c.model, got.Model)
			require.Equal(t, c.model, c.body[got.ModelStart:got.ModelEnd])
		})
	}
	got, err := ScanForm([]byte(part(sound, "12345")+part(`form-data; name="prompt"`, "123")+part(model, "m")+"--B--"), "B")
	require.NoError(t, err)
	require.Equal(t, []int{5, 3}, []int{got.Files, got.Text})
}

func TestScanForm_Refuses(t *testing.T) {
	good := part(model, "m")
	for name, body := range map[string]string{
		"nothing":                           "",
		"no boundary":                       "hello",
		"no part":                           "--B--\r\n",
		"no end":                            good,
		"no end of the last part":           good + "--B\r\nContent-Disposition: " + sound + "\r\n\r\nx",
		"no end of a header":                good + "--B\r\nContent-Disposition: " + sound,
		"no model":                          part(sound, "x") + "--B--",
		"two models":                        good + part(model, "M") + "--B--",
		"two models, one in a file's place": good + part(`form-data; name="model"; filename="x"`, "M") + "--B--",
		"a model in another case":           part(`form-data; name="Model"`, "m") + "--B--",
		"a second one in another case":      good + part(`form-data; name="MODEL"`, "m") + "--B--",
		"a model with a file name":          part(`form-data; name="model"; filename="x"`, "m") + "--B--",
		"a model with an encoded file name": part(`form-data; name="model"; filename*=UTF-8''x`, "m") + "--B--",
		"an empty model":                    part(model, "") + "--B--",
		"control characters":                part(model, "m\r\nn") + "--B--",
		"no UTF-8":                          part(model, "\xff") + "--B--",
		"an encoded model":                  "--B\r\nContent-Disposition: " + model + "\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ==\r\n--B--",
		"an escaped name":                   good + part(`form-data; name="mo\del"`, "x") + "--B--",
		"a name twice":                      good + part(`form-data; name="a"; name="model"`, "x") + "--B--",
		"a name in RFC 5987's form":         good + part(`form-data; name*=UTF-8''model`, "x") + "--B--",
		"a name in pieces":                  good + part(`form-data; name="a"; name*0="mo"; name*1="del"`, "x") + "--B--",
		"the file's name first":             good + part(`form-data; filename="a; name=model"; name="file"`, "x") + "--B--",
		"no name":                           good + part(`form-data`, "x") + "--B--",
		"no form-data":                      good + part(`attachment; name="model"`, "x") + "--B--",
		"an open quote":                     good + part(`form-data; name="a`, "x") + "--B--",
		"words behind the quote":            good + part(`form-data; name="a"b`, "x") + "--B--",
		"two dispositions":                  good + "--B\r\nContent-Disposition: " + sound + "\r\nContent-Disposition: " + model + "\r\n\r\nx\r\n--B--",
		"no disposition":                    good + "--B\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--",
		"a folded header":                   good + "--B\r\nContent-Disposition: form-data;\r\n name=\"model\"\r\n\r\nx\r\n--B--",
		"a space before the colon":          good + "--B\r\nContent-Disposition : " + sound + "\r\n\r\nx\r\n--B--",
		"a bare LF in a header":             good + "--B\r\nContent-Disposition: " + sound + "\n\r\nx\r\n--B--",
		"a boundary after a bare LF":        good + part(sound, "x\n--B\nContent-Disposition: "+model+"\n\nevil") + "--B--",
		"a boundary after a bare CR":        good + part(sound, "x\r--B\rContent-Disposition: "+model+"\r\revil") + "--B--",
		"a whole form with bare LFs":        strings.ReplaceAll(good+"--B--", "\r\n", "\n"),
		"a second form behind the end":      good + "--B--\r\n" + good + "--B--",
		"a part behind an end with words":   part(sound, "x\r\n--B--y") + good + "--B--",
		"a boundary in the preamble's line": "x--B\r\n" + good + "--B--",
		"a header without end":              good + "--B\r\nX: " + strings.Repeat("x", MaxPartHeader) + "\r\n\r\n\r\n--B--",
		"a million parts":                   good + strings.Repeat(part(`form-data; name="a"`, ""), MaxParts) + "--B--",
		"a NUL in a header":                 good + part("form-data; name=\"a\x00\"", "x") + "--B--",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ScanForm([]byte(body), "B")
			var bad *Error
			require.ErrorAs(t, err, &bad)
			require.NotEmpty(t, bad.Message)
			require.NotContains(t, bad.Message, "evil")
		})
	}
}

func TestBoundary(t *testing.T) {
	for contentType, want := range map[string]string{
		`multipart/form-data; boundary=B`:                              "B",
		`Multipart/Form-Data;charset=utf-8;Boundary="a b:c=d?(e),'/"`:  `a b:c=d?(e),'/`,
		`multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxk`: "----WebKitFormBoundary7MA4YWxk",
		`multipart/form-data; boundary=` + strings.Repeat("x", 70):     strings.Repeat("x", 70),
	} {
		got, isForm, err := Boundary(contentType)
		require.NoError(t, err, contentType)
		require.True(t, isForm)
		require.Equal(t, want, got)
	}
	for _, contentType := range []string{
		`multipart/form-data`, `multipart/form-data; boundary=`, `multipart/form-data; boundary=""`, `multipart/form-data; boundary="a "`,
		`multipart/form-data; boundary=` + strings.Repeat("x", 71), `multipart/form-data; boundary=a; boundary=b`, `multipart/form-data; boundary="a\b"`,
		`multipart/form-data; boundary*0=a; boundary*1=b`, `multipart/form-data; boundary="a&b"`, `multipart/form-data; boundary="한"`,
	} {
		_, isForm, err := Boundary(contentType)
		require.True(t, isForm, contentType)
		require.Error(t, err, contentType)
	}
	for _, contentType := range []string{"", "application/json", "multipart/mixed; boundary=B", "application/x-www-form-urlencoded"} {
		_, isForm, err := Boundary(contentType)
		require.False(t, isForm, contentType)
		require.NoError(t, err)
	}
}

// Forms that the standard library writes, of any content, are read back.
func TestScanForm_ReadsWhatIsWritten(t *testing.T) {
	for size := range 200 {
		content := bytes.Repeat([]byte("\r\n--"), size)
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		file, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="f"`}})
		require.NoError(t, err)
		_, err = file.Write(content[:len(content)-len(content)*size/400])
		require.NoError(t, err)
		require.NoError(t, w.WriteField("model", "whisper"))
		require.NoError(t, w.Close())
		boundary, _, err := Boundary(w.FormDataContentType())
		require.NoError(t, err)
		got, err := ScanForm(body.Bytes(), boundary)
		require.NoError(t, err)
		require.Equal(t, "whisper", got.Model)
	}
}

// FuzzScanForm: in what passes, the standard library finds the same model, and no second one.
func FuzzScanForm(f *testing.F) {
	for _, seed := range []string{
		part(model, "m") + "--B--", part(sound, "x\r\n--BX") + part(model, "m") + "--B--\r\n", "--B \r\nContent-Disposition: " + model + "\r\n\r\nm\r\n--B--",
		part(model, "m") + part(`form-data; name="Model"; filename="a\"b"`, "x") + "--B--",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ScanForm(body, "B")
		var bad *Error
		if err != nil {
			require.True(t, errors.As(err, &bad))
			return
		}
		require.Equal(t, got.Model, string(body[got.ModelStart:got.ModelEnd]))
		models := 0
		for r := multipart.NewReader(bytes.NewReader(body), "B"); ; {
			p, err := r.NextRawPart()
			if err != nil {
				break // it ends, or the library is stricter still
			}
			content, err := io.ReadAll(p)
			if err != nil || !strings.EqualFold(p.FormName(), "model") {
				continue
			}
			models++
			require.Equal(t, got.Model, string(content), fmt.Sprintf("%q", body))
		}
		require.LessOrEqual(t, models, 1, "%q", body)
	})
}

// A body of nothing but beginnings of boundaries costs no more than any other.
func BenchmarkScanForm(b *testing.B) {
	for name, content := range map[string]string{"sound": strings.Repeat("\x00\x01RIFF", 1<<20), "dashes": strings.Repeat("-", 6<<20), "lines": strings.Repeat("\r\n--BB", 1<<20)} {
		body := []byte(part(sound, content) + part(model, "m") + "--B--")
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ScanForm(body, "B"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
