package corpus

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// words are what generated records and identifiers are made of.
var words = strings.Fields(`account active address amount archive branch bucket cache channel client cluster column config connection
	content counter country created customer database default delivery description device discount document duration email enabled endpoint
	error event expires export failure feature field filter folder group handler header health history host image import index input invoice
	item kernel label language latency layout length level library limit list location machine manager memory message method metric model
	module month name network node number object offset option order output owner package page parent password payment pending period
	permission phone pool port position prefix price priority process product profile project property provider quantity query queue rate
	reason record region release remote report request response result retry role route schedule schema score search section secret server
	service session shape shipment signal source stage state status storage stream string subject summary support system table target task
	template tenant thread threshold ticket timeout title token total trace type unit update upload user value vendor version volume window`)

func word(r *rand.Rand) string { return words[r.IntN(len(words))] }

// until repeats piece to about n bytes.
func until(n int, piece func(b *strings.Builder)) string {
	var b strings.Builder
	for b.Len() < n {
		piece(&b)
	}
	return b.String()
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func letters(r *rand.Rand, alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func uuid(r *rand.Rand) string {
	h := hex.EncodeToString(random(r, 16))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// value is a JSON value of a record.
func value(r *rand.Rand) any {
	switch r.IntN(7) {
	case 0:
		return r.IntN(100_000)
	case 1:
		return r.Float64() * 1000
	case 2:
		return r.IntN(2) == 0
	case 3:
		return uuid(r)
	case 4:
		return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02dZ", 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
	case 5:
		return map[string]any{word(r): word(r), word(r) + "_id": r.IntN(1000)}
	}
	return word(r) + " " + word(r)
}

func record(r *rand.Rand) map[string]any {
	m := map[string]any{}
	for range 3 + r.IntN(6) {
		m[word(r)+[]string{"", "_" + word(r), "Id"}[r.IntN(3)]] = value(r)
	}
	return m
}

func marshal(v any, indent string) string {
	var b []byte
	var err error
	if indent == "" {
		b, err = json.Marshal(v)
	} else {
		b, err = json.MarshalIndent(v, "", indent)
	}
	if err != nil {
		panic(err)
	}
	return string(b)
}

func records(r *rand.Rand, n int, indent string) string {
	var list []any
	for size := 0; size < n; {
		m := record(r)
		size += len(marshal(m, indent))
		list = append(list, m)
	}
	return marshal(list, indent)
}

// schema is a tool's parameters as agents send them.
func schema(r *rand.Rand) map[string]any {
	properties := map[string]any{}
	var required []string
	for range 2 + r.IntN(6) {
		name := word(r)
		p := map[string]any{"type": []string{"string", "integer", "number", "boolean"}[r.IntN(4)], "description": "The " + word(r) + " of the " + word(r) + "."}
		switch r.IntN(5) {
		case 0:
			p["enum"] = []string{word(r), word(r), word(r)}
		case 1:
			p["default"], p["minimum"], p["maximum"] = r.Float64(), r.IntN(10), r.Float64()*100
		case 2:
			p = map[string]any{"type": "array", "items": p}
		}
		properties[name] = p
		required = append(required, name)
	}
	return map[string]any{"type": "function", "function": map[string]any{
		"name": word(r) + "_" + word(r), "description": "Changes the " + word(r) + " of a " + word(r) + ".",
		"parameters": map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
	}}
}

// emoji are single code points, pairs with a joiner, flags and skin tones.
var emoji = strings.Fields("😀 😂 🥰 😎 🤔 😭 🙏 👍 👍🏽 👎 🎉 🔥 ✨ ❤️ 💔 💡 🚀 🌍 🌧️ ☀️ 🍎 🍕 🍜 ☕ 🐶 🐱 🦊 🐍 🌸 🌳 🏠 🚗 ✈️ 📈 📉 📎 📅 ✅ ❌ ⚠️ 🔒 🔑 🧪 🧠 👀 👨‍👩‍👧‍👦 👩‍💻 🧑🏾‍🚀 🇰🇷 🇯🇵 🇩🇪 🏳️‍🌈 ☎️ ♻️ ♠️ ➡️ 🈲 🆗 🕐 🧩")

func generated() []Kind {
	lines := func(line func(r *rand.Rand) string) func(r *rand.Rand, n int) string {
		return func(r *rand.Rand, n int) string {
			return until(n, func(b *strings.Builder) { b.WriteString(line(r)); b.WriteByte('\n') })
		}
	}
	return []Kind{
		{"json minified", false, func(r *rand.Rand, n int) string { return records(r, n, "") }},
		{"json indented", false, func(r *rand.Rand, n int) string { return records(r, n, "  ") }},
		{"tool schemas", false, func(r *rand.Rand, n int) string {
			var list []any
			for size := 0; size < n; {
				m := schema(r)
				size += len(marshal(m, ""))
				list = append(list, m)
			}
			return marshal(list, "")
		}},
		{"floats", false, func(r *rand.Rand, n int) string {
			return until(n, func(b *strings.Builder) { fmt.Fprintf(b, "%v,", (r.Float64()-0.5)*[]float64{1, 100, 1e-7}[r.IntN(3)]) })
		}},
		{"digits", false, func(r *rand.Rand, n int) string { return letters(r, "0123456789", n) }},
		{"csv", false, lines(func(r *rand.Rand) string {
			return fmt.Sprintf("%d,%s,%.2f,%s %s,2026-%02d-%02d,%t", r.IntN(1_000_000), word(r), r.Float64()*1000, word(r), word(r), 1+r.IntN(12), 1+r.IntN(28), r.IntN(2) == 0)
		})},
		{"hex", false, func(r *rand.Rand, n int) string { return hex.EncodeToString(random(r, n/2)) }},
		{"hex capitals", false, func(r *rand.Rand, n int) string { return strings.ToUpper(hex.EncodeToString(random(r, n/2))) }},
		{"base64", false, func(r *rand.Rand, n int) string { return base64.StdEncoding.EncodeToString(random(r, n*3/4)) }},
		{"base64 url", false, func(r *rand.Rand, n int) string { return base64.RawURLEncoding.EncodeToString(random(r, n*3/4)) }},
		{"base32", false, func(r *rand.Rand, n int) string { return letters(r, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", n) }},
		{"letters small", false, func(r *rand.Rand, n int) string { return letters(r, "abcdefghijklmnopqrstuvwxyz", n) }},
		{"letters capital", false, func(r *rand.Rand, n int) string { return letters(r, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", n) }},
		{"printable", false, func(r *rand.Rand, n int) string {
			return until(n, func(b *strings.Builder) { b.WriteByte(byte(' ' + r.IntN(95))) })
		}},
		{"punctuation", false, func(r *rand.Rand, n int) string { return letters(r, "!#$%&'()*+,-./:;<=>?@[]^_`{|}~\"\\", n) }},
		{"uuids", false, lines(uuid)},
		{"log", false, lines(func(r *rand.Rand) string {
			return fmt.Sprintf("2026-11-%02dT%02d:%02d:%02d.%03dZ level=%s service=%s-%s msg=\"%s %s %s\" request_id=%s duration_ms=%.1f addr=10.%d.%d.%d:%d",
				1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000), []string{"INFO", "WARN", "ERROR", "debug"}[r.IntN(4)], word(r), word(r),
				word(r), word(r), word(r), hex.EncodeToString(random(r, 8)), r.Float64()*1000, r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(65536))
		})},
		{"urls", false, lines(func(r *rand.Rand) string {
			return fmt.Sprintf("https://%s-%s.example.org/%s/%s/%d?%s=%s&%s=%%2F%s#%s", word(r), word(r), word(r), word(r), r.IntN(1e6), word(r), letters(r, "abcdefghijkmnpqrstuvwxyz0123456789", 12), word(r), word(r), word(r))
		})},
		{"table", false, lines(func(r *rand.Rand) string {
			return fmt.Sprintf("| %-12s | %8.2f | %-20s | %6d |", word(r), r.Float64()*1e4, word(r)+" "+word(r), r.IntN(100_000))
		})},
		{"html", false, lines(func(r *rand.Rand) string {
			return fmt.Sprintf(`  <div class="%s-%s %s" data-id="%d"><a href="/%s/%s">%s %s</a></div>`, word(r), word(r), word(r), r.IntN(10000), word(r), word(r), word(r), word(r))
		})},
		{"sql", false, lines(func(r *rand.Rand) string {
			return fmt.Sprintf("SELECT %s.%s, COUNT(*) FROM %ss AS %s LEFT JOIN %s ON %s_id = %d WHERE %s LIKE '%%%s%%' GROUP BY 1;", word(r), word(r), word(r), word(r), word(r), word(r), r.IntN(1000), word(r), word(r))
		})},
		{"long whitespace", false, func(r *rand.Rand, n int) string {
			return until(4*n, func(b *strings.Builder) { // a few runs would say little
				b.WriteString(word(r))
				b.WriteString(strings.Repeat([]string{" ", "\n", "\t", "\r\n"}[r.IntN(4)], 1+r.IntN(200)))
			})
		}},
		{"emoji", false, func(r *rand.Rand, n int) string {
			return until(n, func(b *strings.Builder) { b.WriteString(emoji[r.IntN(len(emoji))]) })
		}},
		{"chat with emoji", false, func(r *rand.Rand, n int) string {
			return until(n, func(b *strings.Builder) {
				for range 2 + r.IntN(8) {
					b.WriteString(word(r) + " ")
				}
				b.WriteString(emoji[r.IntN(len(emoji))] + "\n")
			})
		}},
		{"symbols", false, func(r *rand.Rand, n int) string {
			return until(n, func(b *strings.Builder) {
				b.WriteRune([]rune{0x2190, 0x2200, 0x2500, 0x25a0, 0x0370, 0x1d400}[r.IntN(6)] + rune(r.IntN(80)))
			})
		}},
	}
}
