package estimate

import (
	_ "embed"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	// Unit is one token in prices.
	Unit = 96
	// DeepBlanks is the price of eight spaces that follow a space.
	DeepBlanks = 8
)

// prices has the price of each byte by the byte before it, at [Pair]: what a token's share in it is, fitted by ./fit to many kinds of text so that
// the sum over a text errs upwards. Texts that tokenize worse have other pairs than those that tokenize well: hexadecimal text changes between
// digits and letters, base64 between cases, and text of no language has letters next to each other that words do not have.
//
//go:embed prices.bin
var pricesFile string

var prices = func() (t [1 << 16]uint8) {
	copy(t[:], pricesFile)
	return t
}()

// Pair is the index of a byte's price: two bytes as they lie in memory, read as a little-endian number.
func Pair(last, c byte) int { return int(c)<<8 | int(last) }

func price(last, c byte) int { return int(prices[Pair(last, c)]) }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// unescaped is what a backslash and a letter stand for; 0 for what needs a closer look.
var unescaped = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	t['n'], t['r'], t['t'], t['b'], t['f'], t['u'] = '\n', '\r', '\t', '\f', '\f', 0
	return t
}()

// text prices the bytes of a string up to its closing quote, escapes as the characters they stand for. It returns the price and the index after the
// quote.
func text(b []byte, i int) (cost, next int) {
	last := uint64('"')
	for {
		if i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			q, s := w^(ones*'"'), w^(ones*'\\')
			found := ((q-ones)&^q | (s-ones)&^s) & highs
			switch {
			case found != 0: // the lowest mark is right; those above it may not be
			case w == ones*' ' && last == ' ':
				// Tokenizers have one token for many spaces, and the price of a pair must do for few.
				cost += DeepBlanks
				i += 8
				continue
			default:
				cost += int(prices[uint16(last|w<<8)]) + int(prices[uint16(w)]) + int(prices[uint16(w>>8)]) + int(prices[uint16(w>>16)]) +
					int(prices[uint16(w>>24)]) + int(prices[uint16(w>>32)]) + int(prices[uint16(w>>40)]) + int(prices[uint16(w>>48)])
				last = w >> 56
				i += 8
				continue
			}
			if n := bits.TrailingZeros64(found) / 8 & 7; n > 0 {
				// The sums of one to seven bytes, of which one is picked: how many there are cannot be foreseen, and each guess that fails costs more.
				x := last | w<<8
				var sums [8]int
				sums[1] = int(prices[uint16(x)])
				sums[2] = sums[1] + int(prices[uint16(x>>8)])
				sums[3] = sums[2] + int(prices[uint16(x>>16)])
				sums[4] = sums[3] + int(prices[uint16(x>>24)])
				sums[5] = sums[4] + int(prices[uint16(x>>32)])
				sums[6] = sums[5] + int(prices[uint16(x>>40)])
				sums[7] = sums[6] + int(prices[uint16(x>>48)])
				cost += sums[n]
				last = x >> (8 * n) & 0xff
				i += n
			}
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' {
			cost += price(byte(last), b[i])
			last = uint64(b[i])
			i++
		}
		switch {
		case i == len(b):
			return cost, i
		case b[i] == '"':
			return cost + price(byte(last), '"'), i + 1
		case i+1 == len(b):
			return cost + Unit, i + 1
		}
		if c := unescaped[b[i+1]]; c != 0 {
			cost += price(byte(last), c)
			last = uint64(c)
			i += 2
			continue
		}
		var p int
		var c byte
		p, c, i = codeUnits(b, i, byte(last))
		cost, last = cost+p, uint64(c)
	}
}

// codeUnits prices a \uXXXX escape, or a pair of them, as UTF-8; one that is not whole as two characters. It returns the last byte, too.
func codeUnits(b []byte, i int, last byte) (cost int, c byte, next int) {
	if i+6 > len(b) {
		return price(last, 'u'), 'u', i + 2
	}
	r := rune(hex4(b[i+2:]))
	next = i + 6
	if r < utf8.RuneSelf {
		return price(last, byte(r)), byte(r), next
	}
	if r >= 0xd800 && r < 0xdc00 && next+6 <= len(b) && b[next] == '\\' && b[next+1] == 'u' {
		if low := rune(hex4(b[next+2:])); low >= 0xdc00 && low < 0xe000 {
			r = (r-0xd800)<<10 + (low - 0xdc00) + 0x10000
			next += 6
		}
	}
	var buf [utf8.UTFMax]byte
	for _, c = range buf[:utf8.EncodeRune(buf[:], r)] {
		cost += price(last, c)
		last = c
	}
	return cost, c, next
}

// hex4 reads four hexadecimal digits; other bytes count as 0.
func hex4(b []byte) uint16 {
	return uint16(hexValue[b[0]])<<12 | uint16(hexValue[b[1]])<<8 | uint16(hexValue[b[2]])<<4 | uint16(hexValue[b[3]])
}

var hexValue = func() (t [256]uint8) {
	for v, c := range []byte("0123456789abcdef") {
		t[c] = uint8(v)
	}
	for v, c := range []byte("ABCDEF") {
		t[c] = uint8(v) + 10
	}
	return t
}()
