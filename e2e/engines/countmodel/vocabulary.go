package countmodel

import (
	"fmt"
	"strconv"
)

// token is the number of a token in the vocabulary.
type token int

// Kinds of tokens, numbered as tokenizer.ggml.token_type has them.
const (
	kindNormal  int32 = 1
	kindUnknown int32 = 2
	kindControl int32 = 3
	kindByte    int32 = 6
)

// The tokens that come first, in this order.
const (
	unknown token = iota
	begin
	end
)

// wordStart is how a SentencePiece vocabulary writes the space before a word.
const wordStart = "\u2581"

// vocabulary is a SentencePiece vocabulary in columns. The tokenizer joins
// neighbouring pieces as long as the joined text is a piece too, the piece of
// the highest score first; as every prefix of a number is a number, " 137"
// always ends up as one token.
type vocabulary struct {
	texts  []string
	scores []float32
	kinds  []int32
	number [numbers]token
}

func (v *vocabulary) add(text string, score float32, kind int32) token {
	v.texts = append(v.texts, text)
	v.scores = append(v.scores, score)
	v.kinds = append(v.kinds, kind)
	return token(len(v.texts) - 1)
}

func (v *vocabulary) size() int { return len(v.texts) }

func newVocabulary() *vocabulary {
	v := &vocabulary{}
	v.add("<unk>", 0, kindUnknown)
	v.add("<s>", 0, kindControl)
	v.add("</s>", 0, kindControl)
	for b := range 256 { // what no other piece covers is spelled in bytes
		v.add(fmt.Sprintf("<0x%02X>", b), -100, kindByte)
	}
	v.add(wordStart, -20, kindNormal)
	for c := '!'; c <= '~'; c++ {
		v.add(string(c), -20, kindNormal)
	}
	for n := range numbers {
		digits := strconv.Itoa(n)
		v.number[n] = v.add(wordStart+digits, float32(len(digits)-10), kindNormal)
	}
	return v
}

// successors gives, for each token, the one the model says after it.
func (v *vocabulary) successors() []token {
	next := make([]token, v.size())
	for t := range next {
		next[t] = v.number[0]
	}
	for n, t := range v.number {
		if m, ok := following(n); ok {
			next[t] = v.number[m]
		} else {
			next[t] = end
		}
	}
	return next
}
