package countmodel

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/e2e/engines/gguf"
)

func built(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := New().WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, int64(b.Len()), n)
	return b.Bytes()
}

// The bytes are fixed: who changes the model on purpose changes the sum here,
// after a look at what a real engine makes of the new one.
func TestModelIsTheSameBytesEverywhere(t *testing.T) {
	first, second := sha256.Sum256(built(t)), sha256.Sum256(built(t))
	assert.Equal(t, first, second)
	assert.Equal(t, "05a7cfb2d28b7991283a410c0a36140a8faf28783116b2ad79b7c5040d462dab", hex.EncodeToString(first[:]))
}

func TestHeaderNamesAllThatALlamaNeeds(t *testing.T) {
	data := built(t)
	h, err := gguf.ReadHeader(bufio.NewReader(bytes.NewReader(data)))
	require.NoError(t, err)

	assert.Equal(t, "llama", h.Metadata["general.architecture"])
	assert.Equal(t, true, h.Metadata["tokenizer.ggml.add_bos_token"])
	words := h.Metadata["tokenizer.ggml.tokens"].([]string)
	assert.Len(t, h.Metadata["tokenizer.ggml.scores"], len(words))
	assert.Len(t, h.Metadata["tokenizer.ggml.token_type"], len(words))
	assert.Equal(t, uint32(len(words)), h.Metadata["llama.vocab_size"])
	assert.Equal(t, "</s>", words[h.Metadata["tokenizer.ggml.eos_token_id"].(uint32)])
	seen := map[string]bool{}
	for _, w := range words {
		assert.False(t, seen[w], "%q is in the vocabulary twice", w)
		seen[w] = true
	}

	names := map[string][]uint64{}
	for _, e := range h.Tensors {
		names[e.Name] = e.Shape
		assert.Zero(t, e.Offset%32, "%s is not aligned", e.Name)
	}
	for _, want := range []string{
		"token_embd", "output_norm", "output", "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v",
		"blk.0.attn_output", "blk.0.ffn_norm", "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down",
	} {
		assert.Contains(t, names, want+".weight")
	}
	assert.Equal(t, []uint64{width, uint64(len(words))}, names["output.weight"])
	last := h.Tensors[len(h.Tensors)-1]
	assert.Equal(t, int64(len(data)), h.DataStart+int64(last.Offset)+width*feedForward*2)
}

// Does the arithmetic of an engine on the weights: for each token the right
// successor has to lead by far.
func TestEveryTokenIsFollowedByItsSuccessor(t *testing.T) {
	v := newVocabulary()
	require.LessOrEqual(t, v.size(), base*base*base, "more tokens than addresses")
	in, out := embeddings(v), outputs(v)
	for tok, want := range v.successors() {
		var ones []int // the dimensions of the row that are not zero
		for j, x := range in[tok*width : (tok+1)*width] {
			if x != 0 {
				require.InDelta(t, 1, x, 0)
				ones = append(ones, j)
			}
		}
		require.Len(t, ones, places)
		var best, runnerUp float32
		winner := token(-1)
		for o := range v.size() {
			var dot float32
			for _, j := range ones {
				dot += out[o*width+j]
			}
			if dot > best {
				best, runnerUp, winner = dot, best, token(o)
			} else if dot > runnerUp {
				runnerUp = dot
			}
		}
		require.Equal(t, want, winner, "after %q", v.texts[tok])
		require.GreaterOrEqual(t, best-runnerUp, float32(decisiveness), "after %q", v.texts[tok])
	}
}

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		start, limit int
		want         string
	}{
		{97, 50, " 98 99 100"},
		{0, 3, " 1 2 3"},
		{799, 50, " 800"},
		{100, 50, ""},
		{800, 50, ""},
		{801, 2, " 802 803"},
		{998, 4, " 999 801 802 803"},
	} {
		assert.Equal(t, c.want, Answer(c.start, c.limit), "start %d", c.start)
	}
	for start := range numbers {
		words := strings.Fields(Answer(start, 2*numbers))
		assert.Equal(t, Endless(start), len(words) == 2*numbers, "start %d", start)
	}
}
