package estimate

// Prices are in units of 1/24 token, so that thirds and eighths are whole numbers.
const unit = 24

// class is a kind of byte. A character of several bytes is priced by its first byte; the rest are tails.
type class uint8

const (
	tail    class = iota // continuation byte below 0x98
	symTail              // continuation byte from 0x98: with lead E2 it makes a symbol such as U+2764
	space                // space and tab
	newline              // LF and CR
	lower                // a–z
	upper                // A–Z
	digit                // 0–9
	punct                // other printable ASCII
	control              // other ASCII
	lead2                // two bytes: Latin with accents, Greek, Cyrillic, Hebrew, Arabic
	lead3                // three bytes: Hangul, Han, Kana and others
	leadE0               // three bytes from E0: Indic scripts, Thai
	leadE2               // three bytes from E2: typographic punctuation, symbols
	lead4                // four bytes: emoji, rare Han
	classes
)

var classOf = func() (t [256]class) {
	for b := range t {
		switch {
		case b == ' ' || b == '\t':
			t[b] = space
		case b == '\n' || b == '\r':
			t[b] = newline
		case b >= 'a' && b <= 'z':
			t[b] = lower
		case b >= 'A' && b <= 'Z':
			t[b] = upper
		case b >= '0' && b <= '9':
			t[b] = digit
		case b < 0x20 || b == 0x7f:
			t[b] = control
		case b < 0x80:
			t[b] = punct
		case b < 0x98:
			t[b] = tail
		case b < 0xc0:
			t[b] = symTail
		case b < 0xe0:
			t[b] = lead2
		case b == 0xe0:
			t[b] = leadE0
		case b == 0xe2:
			t[b] = leadE2
		case b < 0xf0:
			t[b] = lead3
		default:
			t[b] = lead4
		}
	}
	return t
}()

// price[a][b] is what a byte of class b costs after one of class a. A space is mostly part of its word. Words in one case cost a token per three letters; changes of case and
// between letters and digits cost more, which prices hex and base64 at about 0.75 token a character without looking ahead.
var price = func() (t [classes][classes]uint8) {
	single := [classes]uint8{
		space: 4, newline: unit, lower: 8, upper: 12, digit: unit, punct: unit, control: unit,
		lead2: unit, lead3: unit + 2, leadE0: unit + 12, leadE2: unit, lead4: 3 * unit,
	}
	for a := range classes {
		t[a] = single
	}
	t[space][space], t[newline][space] = 3, 3 // indentation merges
	t[newline][newline] = 12
	t[lower][upper] = unit
	t[upper][lower], t[upper][upper] = 16, 16
	t[digit][lower], t[digit][upper] = unit, unit
	t[punct][punct] = 18
	t[leadE2][symTail] = unit
	return t
}()

// text prices the bytes of a string, escapes included, up to its closing quote. It returns the price in units and the index after the quote.
func text(b []byte, i int) (cost, next int) {
	prev := space
	for i < len(b) {
		c := b[i]
		if c == '"' {
			return cost, i + 1
		}
		if c == '\\' {
			var p int
			p, prev, i = escape(b, i, prev)
			cost += p
			continue
		}
		cl := classOf[c]
		cost += int(price[prev][cl])
		prev = cl
		i++
	}
	return cost, i
}

// escape prices one escape sequence as the character it stands for.
func escape(b []byte, i int, prev class) (cost int, cl class, next int) {
	if i+1 >= len(b) {
		return unit, punct, len(b)
	}
	switch b[i+1] {
	case 'n', 'r':
		cl = newline
	case 't':
		cl = space
	case 'u':
		if i+6 <= len(b) {
			return codeUnit(hex4(b[i+2:i+6]), prev, i+6)
		}
		cl = control
	case 'b', 'f':
		cl = control
	default:
		cl = punct
	}
	return int(price[prev][cl]), cl, i + 2
}

// codeUnit prices a \uXXXX escape by the class its character would have in UTF-8.
func codeUnit(u uint16, prev class, next int) (int, class, int) {
	var cl class
	switch {
	case u < 0x80:
		cl = classOf[u]
	case u < 0x800:
		cl = lead2
	case u < 0x1000:
		cl = leadE0
	case u >= 0xd800 && u < 0xdc00:
		cl = lead4
	case u >= 0xdc00 && u < 0xe000:
		return 0, tail, next // the pair was priced with its first half
	case u >= 0x2600 && u < 0x3000:
		return 2 * unit, leadE2, next
	case u >= 0x2000 && u < 0x3000:
		cl = leadE2
	default:
		cl = lead3
	}
	return int(price[prev][cl]), cl, next
}

func hex4(b []byte) (u uint16) {
	for _, c := range b {
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
