// Command fit makes ../prices.bin, the price of each byte by the byte before it, from the corpus:
//
//	go run ./edge/estimate/fit
//
// The result is the same on every run. -more names folders of UTF-8 text files that are prose or code as well; the committed table was made with
// translated manuals of a Linux distribution in 24 languages, so that it does not know the corpus alone.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/estimate/corpus"
)

const (
	perKind = 120 // samples
	rounds  = 250
	// A sample's estimate should be between low and high times the truth; high depends on how alike texts of its kind are.
	low, highSmooth, highOther = 1.22, 1.36, 1.8
	// Being below costs that much more than being above.
	belowWeight = 6.0
)

// sample is a text as the fit sees it: how often each pair of bytes occurs in it.
type sample struct {
	pairs  []int
	counts []float64
	fixed  float64 // what has a price of its own
	truth  float64
	high   float64
}

func main() {
	more := flag.String("more", "", "folders of text files, separated by commas")
	out := flag.String("out", "edge/estimate/prices.bin", "the table")
	flag.Parse()
	if err := run(*out, *more); err != nil {
		fmt.Fprintln(os.Stderr, "fit:", err)
		os.Exit(1)
	}
}

func run(out, more string) error {
	kinds, err := corpus.Kinds()
	if err != nil {
		return err
	}
	for _, dir := range strings.Split(more, ",") {
		paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			kinds = append(kinds, corpus.Text(filepath.Base(path), true, string(text)))
		}
	}
	counter, err := corpus.NewCounter()
	if err != nil {
		return err
	}
	var samples []sample
	for _, kind := range kinds {
		for _, text := range kind.Samples(perKind, 1) {
			truth, err := counter.Tokens(text)
			if err != nil {
				return err
			}
			s := count(text)
			s.truth, s.high = float64(truth), highOther
			if kind.Smooth {
				s.high = highSmooth
			}
			samples = append(samples, s)
		}
	}
	prices := fit(samples)
	table := make([]byte, len(prices))
	for i, p := range prices {
		table[i] = byte(min(math.Round(p), 255))
	}
	return os.WriteFile(out, table, 0o644)
}

// count lists a text's pairs, each as the index of its price.
func count(text string) sample {
	var n [1 << 16]float64
	var fixed float64
	last := byte('"')
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], "        ") && last == ' ' {
			fixed += estimate.DeepBlanks
			i += 7
			continue
		}
		n[estimate.Pair(last, text[i])]++
		last = text[i]
	}
	s := sample{fixed: fixed}
	for pair, times := range n {
		if times > 0 {
			s.pairs, s.counts = append(s.pairs, pair), append(s.counts, times)
		}
	}
	return s
}

// fit moves prices from a cautious first guess to where no sample costs less than low or more than high times its truth, as far as that goes.
// A pair that the corpus does not have keeps its first price.
func fit(samples []sample) []float64 {
	prices := make([]float64, 1<<16)
	for last := range 256 {
		for c := range 256 {
			prices[estimate.Pair(byte(last), byte(c))] = guess(byte(last), byte(c))
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	for round := range rounds {
		rate := 0.3 / (1 + float64(round)/40)
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			correct(prices, &samples[i], rate)
		}
	}
	return prices
}

// correct changes the prices of a sample's pairs by their shares in its estimate.
func correct(prices []float64, s *sample, rate float64) {
	var sum, squares float64
	for i, pair := range s.pairs {
		cost := s.counts[i] * prices[pair]
		sum += cost
		squares += cost * cost
	}
	ratio := (sum + s.fixed) / estimate.Unit / s.truth
	var change float64
	switch {
	case ratio < low:
		change = belowWeight * (low - ratio)
	case ratio > s.high:
		change = s.high - ratio
	default:
		return
	}
	step := rate * min(change, 1) * sum / squares
	for i, pair := range s.pairs {
		prices[pair] = min(max(prices[pair]*math.Exp(max(min(step*s.counts[i]*prices[pair], 0.5), -0.5)), floor(pair)), 255)
	}
}

// floor is the least price of a pair. Many models take numbers digit by digit, unlike the tokenizers of the fit.
func floor(pair int) float64 {
	last, c := byte(pair), byte(pair>>8)
	if isDigit(last) && isDigit(c) {
		return 0.72 * estimate.Unit
	}
	return 0.5
}

// guess prices what the corpus may not have: text of no language.
func guess(last, c byte) float64 {
	const token = estimate.Unit
	letter := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	lower := func(c byte) bool { return c >= 'a' && c <= 'z' }
	switch {
	case c >= 0xf0, c >= 0xc0 && c < 0xe0:
		return token
	case c >= 0x80:
		return 0.7 * token
	case c == ' ' && last == ' ', c == '\t' && last == '\t':
		return token / 8
	case c == ' ':
		return token / 6
	case letter(c) && last == ' ':
		return token / 2
	case lower(c) && letter(last), letter(c) && letter(last) && lower(c) == lower(last):
		return 0.5 * token
	}
	return token
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
