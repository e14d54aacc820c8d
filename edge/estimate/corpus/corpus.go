package corpus

import (
	"embed"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// Kind is a kind of text.
type Kind struct {
	Name string
	// Smooth kinds, prose and code, are the ones an estimate can be close to.
	Smooth bool
	// sample makes one text of about n bytes.
	sample func(r *rand.Rand, n int) string
}

// The sizes of samples in bytes.
const (
	minSample = 1 << 10
	maxSample = 6 << 10
)

// Samples returns n texts of the kind, the same ones for the same seed.
func (k Kind) Samples(n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, uint64(len(k.Name))))
	texts := make([]string, n)
	for i := range texts {
		texts[i] = k.sample(r, minSample+r.IntN(maxSample-minSample))
	}
	return texts
}

//go:embed prose/*.txt
var prose embed.FS

// Kinds returns every kind, in a fixed order.
func Kinds() ([]Kind, error) {
	var kinds []Kind
	entries, err := fs.ReadDir(prose, "prose")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(prose, "prose/"+e.Name())
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, Text("prose "+strings.TrimSuffix(e.Name(), ".txt"), true, string(text)))
	}
	for _, c := range []struct{ name, dir, suffix string }{
		{"code go", "src/net/http", ".go"},
		{"code c", "src/runtime/cgo", ".c"},
		{"code assembly", "src/crypto/internal/fips140", ".s"},
		{"code javascript", "lib/wasm", ".js"},
		{"code python", "src/runtime", ".py"},
		{"markdown", "src/cmd", ".md"},
	} {
		text, err := files(filepath.Join(runtime.GOROOT(), c.dir), c.suffix) //nolint:staticcheck // the toolchain's own sources are the corpus
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, Text(c.name, true, text))
	}
	return append(kinds, generated()...), nil
}

// Text is a kind whose samples are windows on a long text.
func Text(name string, smooth bool, text string) Kind {
	return Kind{name, smooth, func(r *rand.Rand, n int) string { return window(r, text, n) }}
}

// window returns about n bytes of whole lines; from a short text, lines drawn at random.
func window(r *rand.Rand, text string, n int) string {
	if len(text) < 8*n {
		var b strings.Builder
		lines := strings.SplitAfter(text, "\n")
		for b.Len() < n {
			b.WriteString(lines[r.IntN(len(lines))])
		}
		return b.String()
	}
	from := r.IntN(len(text) - n)
	for !utf8.RuneStart(text[from]) {
		from++
	}
	to := from + n
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	return text[from:to]
}

// maxText bounds what is read of one kind.
const maxText = 1 << 20

func files(dir, suffix string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		if b.Len() > maxText {
			return fs.SkipAll
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err == nil && b.Len() == 0 {
		err = fmt.Errorf("corpus: no %s file in %s", suffix, dir)
	}
	return b.String(), err
}

// Counter counts tokens as the tokenizers of the largest vocabularies do.
type Counter []tokenizer.Codec

// NewCounter loads o200k and cl100k.
func NewCounter() (Counter, error) {
	var c Counter
	for _, name := range []tokenizer.Encoding{tokenizer.O200kBase, tokenizer.Cl100kBase} {
		codec, err := tokenizer.Get(name)
		if err != nil {
			return nil, err
		}
		c = append(c, codec)
	}
	return c, nil
}

// Tokens is the truth an estimate is held against: the larger of the counts.
func (c Counter) Tokens(text string) (int, error) {
	counts := make([]int, len(c))
	for i, codec := range c {
		n, err := codec.Count(text)
		if err != nil {
			return 0, err
		}
		counts[i] = n
	}
	return slices.Max(counts), nil
}
