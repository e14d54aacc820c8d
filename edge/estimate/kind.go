package estimate

import (
	"fmt"
	"math"
)

// Kind says where a body's text lies among all texts, as far as its bytes tell: texts that lie close tokenize alike.
type Kind struct {
	// Script is the most frequent one beyond Latin, an index of scriptNames.
	Script uint8
	// At are the shares of digits, blanks and punctuation among the characters and the logarithm of the price a character, each in units of what makes
	// a difference.
	At [axes]float32
}

const axes = 4

// What makes a difference: 8, 12 and 8 percentage points, and a sixth more tokens.
const (
	digitStep, blankStep, punctStep = 0.08, 0.12, 0.08
	priceStep                       = 0.15
)

var scriptNames = [...]string{"latin", "greek-cyrillic", "semitic", "indic", "han-kana", "hangul", "symbols"}

const (
	probes    = 64 // places of a body that kindOf looks at
	probeSize = 64 // bytes at each
)

// group is what kindOf counts a byte as.
type group uint8

const (
	ofLetter group = iota
	ofDigit
	ofBlank
	ofPunct
	ofTail // of a character longer than a byte
	ofGreekCyrillic
	ofSemitic
	ofIndic
	ofHanKana
	ofHangul
	ofSymbol
	groups
)

var groupOf = func() (t [256]group) {
	for b := range t {
		switch {
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			t[b] = ofBlank
		case b >= '0' && b <= '9':
			t[b] = ofDigit
		case b|0x20 >= 'a' && b|0x20 <= 'z':
			t[b] = ofLetter
		case b < 0x80:
			t[b] = ofPunct
		case b < 0xc0:
			t[b] = ofTail
		case b < 0xcd:
			t[b] = ofLetter
		case b < 0xd6:
			t[b] = ofGreekCyrillic
		case b < 0xe0:
			t[b] = ofSemitic
		case b < 0xe2:
			t[b] = ofIndic
		case b == 0xe2 || b >= 0xee:
			t[b] = ofSymbol
		case b < 0xea:
			t[b] = ofHanKana
		default:
			t[b] = ofHangul
		}
	}
	return t
}()

// kindOf places a body with that estimate. It looks at evenly spread places of the body, so that its cost does not grow with it.
func kindOf(body []byte, tokens int) Kind {
	var n [groups]int
	stride := max(len(body)/probes, probeSize)
	seen := 0
	for from := 0; from < len(body); from += stride {
		probe := body[from:min(from+probeSize, len(body))]
		for _, c := range probe {
			n[groupOf[c]]++
		}
		seen += len(probe)
	}
	if seen == 0 {
		return Kind{}
	}
	characters := float64(seen - n[ofTail])
	var k Kind
	most := seen / 50 // less than that is a stray
	for g := ofGreekCyrillic; g < groups; g++ {
		if n[g] > most {
			k.Script, most = uint8(g-ofGreekCyrillic+1), n[g]
		}
	}
	perCharacter := float64(tokens) / float64(len(body)) * float64(seen) / max(characters, 1)
	k.At = [axes]float32{
		float32(float64(n[ofDigit]) / characters / digitStep),
		float32(float64(n[ofBlank]) / characters / blankStep),
		float32(float64(n[ofPunct]) / characters / punctStep),
		float32(math.Log(perCharacter+1e-3) / priceStep),
	}
	return k
}

// grids are how many units lie between two places of a grid: what a fine one has not seen enough of, a coarse one may have.
var grids = [...]uint8{1, 3}

// cell is a place on a grid of kinds.
type cell struct {
	grid   uint8
	script uint8
	at     [axes]int8
}

// cell returns the nearest place of the grid.
func (k Kind) cell(grid uint8) cell {
	c := cell{grid: grid, script: k.Script}
	for i, x := range k.At {
		c.at[i] = int8(math.Round(float64(x) / float64(grid)))
	}
	return c
}

// around returns the places between which the kind lies: what is seen of it counts for all of them, so that texts on both sides of a border learn from
// each other.
func (k Kind) around(grid uint8) (cells [1 << axes]cell) {
	for corner := range cells {
		c := cell{grid: grid, script: k.Script}
		for i, x := range k.At {
			c.at[i] = int8(math.Floor(float64(x)/float64(grid))) + int8(corner>>i&1)
		}
		cells[corner] = c
	}
	return cells
}

func (c cell) String() string {
	at := func(axis int, step float64) float64 { return float64(c.at[axis]) * float64(c.grid) * step }
	return fmt.Sprintf("%s digits %.0f%% blanks %.0f%% punctuation %.0f%% price %.2f", scriptNames[c.script],
		100*at(0, digitStep), 100*at(1, blankStep), 100*at(2, punctStep), math.Exp(at(3, priceStep)))
}
