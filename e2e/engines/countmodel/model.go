package countmodel

import "github.com/iop-dev/iop/e2e/engines/gguf"

const (
	// base and places define a token's address: places digits of that base.
	base   = 12
	places = 3
	// width is the length of an embedding: base*places dimensions hold the
	// address, the rest is zero. One attention head of 64, the smallest that
	// engines have fast paths for.
	width = 64
	// feedForward is the inner width of the feed-forward layer, which does
	// nothing: the smallest that engines accept without complaint.
	feedForward = 64
	// decisiveness scales the output rows. After normalisation a one of an
	// address has the value sqrt(width/places) = 4.6, so the right successor
	// leads by 16 × 4.6 = 74 over any other: at temperature 0.8 all others
	// together are never sampled.
	decisiveness = 16
	// trainedContext is the largest context, in tokens, that the model claims.
	trainedContext = 32768
	// mostlyFloat16 is the format's code for the kind of weights; an engine
	// shows it and does nothing with it.
	mostlyFloat16 = 1
)

// New builds the model.
func New() *gguf.File {
	v := newVocabulary()
	return &gguf.File{Metadata: metadata(v), Tensors: tensors(v)}
}

func metadata(v *vocabulary) []gguf.Pair {
	return []gguf.Pair{
		{Key: "general.architecture", Value: "llama"},
		{Key: "general.name", Value: "count"},
		{Key: "general.file_type", Value: uint32(mostlyFloat16)},
		{Key: "llama.vocab_size", Value: uint32(v.size())},
		{Key: "llama.context_length", Value: uint32(trainedContext)},
		{Key: "llama.block_count", Value: uint32(1)},
		{Key: "llama.embedding_length", Value: uint32(width)},
		{Key: "llama.feed_forward_length", Value: uint32(feedForward)},
		{Key: "llama.attention.head_count", Value: uint32(1)},
		{Key: "llama.attention.head_count_kv", Value: uint32(1)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
		{Key: "llama.rope.dimension_count", Value: uint32(width)},
		{Key: "tokenizer.ggml.model", Value: "llama"},
		{Key: "tokenizer.ggml.pre", Value: "default"},
		{Key: "tokenizer.ggml.tokens", Value: v.texts},
		{Key: "tokenizer.ggml.scores", Value: v.scores},
		{Key: "tokenizer.ggml.token_type", Value: v.kinds},
		{Key: "tokenizer.ggml.unknown_token_id", Value: uint32(unknown)},
		{Key: "tokenizer.ggml.bos_token_id", Value: uint32(begin)},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(end)},
		{Key: "tokenizer.ggml.add_bos_token", Value: true},
		{Key: "tokenizer.ggml.add_space_prefix", Value: true},
	}
}

func tensors(v *vocabulary) []gguf.Tensor {
	rows := uint64(v.size())
	ts := []gguf.Tensor{
		{Name: "token_embd.weight", Shape: []uint64{width, rows}, Elements: embeddings(v)},
		{Name: "output_norm.weight", Shape: []uint64{width}, Elements: ones(width)},
		{Name: "output.weight", Shape: []uint64{width, rows}, Elements: outputs(v)},
		{Name: "blk.0.attn_norm.weight", Shape: []uint64{width}, Elements: ones(width)},
		{Name: "blk.0.ffn_norm.weight", Shape: []uint64{width}, Elements: ones(width)},
	}
	for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
		ts = append(ts, silent("blk.0."+name+".weight", width, width))
	}
	return append(ts,
		silent("blk.0.ffn_gate.weight", width, feedForward),
		silent("blk.0.ffn_up.weight", width, feedForward),
		silent("blk.0.ffn_down.weight", feedForward, width),
	)
}

// silent is a weight that adds nothing to what passes it by.
func silent(name string, in, out uint64) gguf.Tensor {
	return gguf.Tensor{Name: name, Shape: []uint64{in, out}, Type: gguf.Float16}
}

func ones(n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = 1
	}
	return s
}

// write adds the address of t, each digit as value, to one row of a matrix.
func (t token) write(row []float32, value float32) {
	n := int(t)
	for place := range places {
		row[place*base+n%base] = value
		n /= base
	}
}

func embeddings(v *vocabulary) []float32 {
	m := make([]float32, v.size()*width)
	for t, next := range v.successors() {
		next.write(m[t*width:(t+1)*width], 1)
	}
	return m
}

func outputs(v *vocabulary) []float32 {
	m := make([]float32, v.size()*width)
	for t := range v.size() {
		token(t).write(m[t*width:(t+1)*width], decisiveness)
	}
	return m
}
