package estimate

import "encoding/binary"

const (
	// ImageTokens is the price of an image whose size cannot be read: about what vision models make of a full-size picture.
	ImageTokens = 2048
	// imagePatch is the edge in pixels of what vision models make a token of: the finest of those that take pictures of any size.
	imagePatch = 28
	// leastImageTokens is what models with a fixed count make of a small picture, mostImageTokens where those with none stop.
	leastImageTokens, mostImageTokens = 576, 16384
	// ImageHeader is how many bytes of an image are searched for its size.
	ImageHeader = 64 << 10
)

// imageTokens prices an image by its size in pixels, read from the head of its file, of which b begins with the base64 text.
func imageTokens(b []byte) int {
	r := base64Reader{b: b}
	width, height := pixels(&r)
	if width <= 0 || height <= 0 {
		return ImageTokens
	}
	patches := func(n int) int { return min((n+imagePatch-1)/imagePatch, mostImageTokens) }
	return min(max(patches(width)*patches(height), leastImageTokens), mostImageTokens)
}

// pixels reads the size of a PNG, JPEG, GIF or WebP; 0 if that cannot be found.
func pixels(r *base64Reader) (width, height int) {
	var h [30]byte
	if !r.read(h[:2]) {
		return 0, 0
	}
	if h[0] == 0xff && h[1] == 0xd8 {
		return jpegPixels(r)
	}
	if !r.read(h[2:10]) {
		return 0, 0
	}
	le := binary.LittleEndian
	switch {
	case string(h[:3]) == "GIF":
		return int(le.Uint16(h[6:])), int(le.Uint16(h[8:]))
	case string(h[:8]) == "\x89PNG\r\n\x1a\n":
		if r.read(h[10:24]) && string(h[12:16]) == "IHDR" {
			return int(binary.BigEndian.Uint32(h[16:])), int(binary.BigEndian.Uint32(h[20:]))
		}
	case string(h[:4]) == "RIFF":
		if !r.read(h[10:30]) || string(h[8:12]) != "WEBP" {
			return 0, 0
		}
		switch string(h[12:16]) {
		case "VP8 ":
			return int(le.Uint16(h[26:]) & 0x3fff), int(le.Uint16(h[28:]) & 0x3fff)
		case "VP8L":
			size := le.Uint32(h[21:])
			return int(size&0x3fff) + 1, int(size>>14&0x3fff) + 1
		case "VP8X":
			return int(le.Uint32(h[24:])&0xffffff) + 1, int(le.Uint32(h[26:])>>8) + 1
		}
	}
	return 0, 0
}

// jpegPixels goes from segment to segment, up to the one that begins a frame.
func jpegPixels(r *base64Reader) (width, height int) {
	var h [5]byte
	for r.read(h[:2]) && h[0] == 0xff {
		marker := h[1]
		for marker == 0xff { // padding
			if !r.read(h[1:2]) {
				return 0, 0
			}
			marker = h[1]
		}
		switch {
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			if !r.skip(2) || !r.read(h[:]) {
				return 0, 0
			}
			return int(binary.BigEndian.Uint16(h[3:])), int(binary.BigEndian.Uint16(h[1:]))
		case marker == 0x01, marker >= 0xd0 && marker <= 0xd8:
			continue // without a length
		case marker == 0xd9, marker == 0xda: // the picture's end, or its data
			return 0, 0
		}
		if !r.read(h[:2]) || !r.skip(int(binary.BigEndian.Uint16(h[:]))-2) {
			return 0, 0
		}
	}
	return 0, 0
}

// base64Reader decodes what stands in a JSON string, the first ImageHeader bytes of it.
type base64Reader struct {
	b      []byte
	i      int
	taken  int
	buffer uint32
	filled int // bits
}

func (r *base64Reader) next() (byte, bool) {
	for r.filled < 8 {
		if r.i >= len(r.b) || r.taken == ImageHeader {
			return 0, false
		}
		c := r.b[r.i]
		r.i++
		v := base64Value[c]
		switch {
		case c == '\\': // "\/"
			continue
		case v == 0xff:
			return 0, false
		}
		r.buffer = r.buffer<<6 | uint32(v)
		r.filled += 6
	}
	r.taken++
	r.filled -= 8
	return byte(r.buffer >> r.filled), true
}

func (r *base64Reader) read(p []byte) bool {
	for i := range p {
		var ok bool
		if p[i], ok = r.next(); !ok {
			return false
		}
	}
	return true
}

func (r *base64Reader) skip(n int) bool {
	for ; n > 0; n-- {
		if _, ok := r.next(); !ok {
			return false
		}
	}
	return true
}

// base64Value is the value of a digit in either alphabet, 0xff for other bytes.
var base64Value = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = byte(i)
	}
	t['-'], t['_'] = 62, 63
	return t
}()
