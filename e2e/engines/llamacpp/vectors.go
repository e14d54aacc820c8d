package llamacpp

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// dimensions is the length of an embedding.
const dimensions = 256

// vector is the embedding of a text: the same text, the same vector, of length 1.
func vector(text string) []float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	random := rand.New(rand.NewPCG(h.Sum64(), 0))
	v, square := make([]float64, dimensions), 0.0
	for i := range v {
		v[i] = random.NormFloat64()
		square += v[i] * v[i]
	}
	for i := range v {
		v[i] = float64(float32(v[i] / math.Sqrt(square)))
	}
	return v
}

// embeddings is POST /v1/embeddings. The model is named as the request named it.
func (s *Server) embeddings(x *exchange, b body) error {
	if !s.options.Embeddings {
		return unsupported("This server does not support embeddings. Start it with `--embeddings`")
	}
	if b.Input == nil {
		return invalid("\"input\" or \"content\" must be provided")
	}
	inputs := []string{textOf(b.Input)}
	var many []string
	if json.Unmarshal(b.Input, &many) == nil {
		inputs = many
	}
	var data []string
	tokens := 0
	for i, in := range inputs {
		tokens += 1 + countTokens(in)
		written, format := numbers(vector(in)), ""
		if b.EncodingFormat == "base64" {
			written, format = quote(packed(vector(in))), `,"encoding_format":"base64"`
		}
		data = append(data, fmt.Sprintf(`{"embedding":%s,"index":%d,"object":"embedding"%s}`, written, i, format))
	}
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(`{"model":%s,"object":"list","usage":{"prompt_tokens":%d,"total_tokens":%d},"data":[%s]}`,
		quote(s.options.Alias), tokens, tokens, strings.Join(data, ",")))
	return nil
}

func numbers(v []float64) string {
	all := make([]string, len(v))
	for i, f := range v {
		all[i] = strconv.FormatFloat(f, 'g', -1, 64)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// packed is a vector as base64 of little-endian 32-bit floats.
func packed(v []float64) string {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// rerank is POST /v1/rerank: by how many characters of the query a document has.
func (s *Server) rerank(x *exchange, b body) error {
	if !s.options.Reranking {
		return unsupported("This server does not support reranking. Start it with `--reranking`")
	}
	if len(b.Documents) == 0 {
		return invalid("\"documents\" must be a non-empty string array")
	}
	type result struct {
		index int
		score float64
	}
	var results []result
	tokens := 0
	for i, d := range b.Documents {
		score := 0.0
		for _, r := range b.Query {
			if strings.ContainsRune(d, r) {
				score++
			}
		}
		results = append(results, result{i, score})
		tokens += countTokens(b.Query) + countTokens(d) + 4
	}
	slices.SortStableFunc(results, func(a, b result) int { return int(b.score - a.score) })
	var all []string
	for _, r := range results {
		all = append(all, fmt.Sprintf(`{"index":%d,"relevance_score":%.1f}`, r.index, r.score))
	}
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(`{"model":%s,"object":"list","usage":{"prompt_tokens":%d,"total_tokens":%d},"results":[%s]}`,
		quote(s.options.Alias), tokens, tokens, strings.Join(all, ",")))
	return nil
}
