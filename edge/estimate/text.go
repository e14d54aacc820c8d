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

// text prices the bytes of a string up to its closing quote, escapes as the characters they stand for. It returns the price and the index after the
// quote.
func text(b []byte, i int) (cost, next int) {
	last := uint64('"')
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			q, s := w^(ones*'"'), w^(ones*'\\')
			if found := ((q-ones)&^q | (s-ones)&^s) & highs; found != 0 {
				// The lowest mark is right; those above it may not be.
				for range bits.TrailingZeros64(found) / 8 {
					cost += int(prices[uint16(last|w<<8)])
					last = w & 0xff
					w >>= 8
					i++
				}
				break
			}
			if w == ones*' ' && last == ' ' {
				// Tokenizers have one token for many spaces, and the price of a pair must do for few.
				cost += DeepBlanks
				i += 8
				continue
			}
			cost += int(prices[uint16(last|w<<8)]) + int(prices[uint16(w)]) + int(prices[uint16(w>>8)]) + int(prices[uint16(w>>16)]) +
				int(prices[uint16(w>>24)]) + int(prices[uint16(w>>32)]) + int(prices[uint16(w>>40)]) + int(prices[uint16(w>>48)])
			last = w >> 56
			i += 8
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
		}
		var p int
		var c byte
		p, c, i = escape(b, i, byte(last))
		cost, last = cost+p, uint64(c)
	}
}

// escape prices one escape sequence as the character it stands for, and returns that one's last byte.
func escape(b []byte, i int, last byte) (cost int, c byte, next int) {
	if i+1 >= len(b) {
		return Unit, '\\', len(b)
	}
	switch c = b[i+1]; c {
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'b', 'f':
		c = '\f'
	case 'u':
		if i+6 <= len(b) {
			return codeUnits(b, i, last)
		}
	}
	return price(last, c), c, i + 2
}

// codeUnits prices a \uXXXX escape, or a pair of them, as UTF-8.
func codeUnits(b []byte, i int, last byte) (cost int, c byte, next int) {
	r := rune(hex4(b[i+2:]))
	next = i + 6
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

func hex4(b []byte) (u uint16) {
	for _, c := range b[:4] {
		u <<= 4
		switch {
		case c >= '0' && c <= '9':
			u |= uint16(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			u |= uint16(c|0x20-'a') + 10
		}
	}
	return u
}
