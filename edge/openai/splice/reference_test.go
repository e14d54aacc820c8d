package splice

import (
	"bytes"
	"encoding/json"
	"slices"
)

// span is a model value in a body, quotes included.
type span struct{ from, to int }

// referenceJSON finds the spliced places of one document the slow way: it tokenises with encoding/json and looks at the paths.
func referenceJSON(doc []byte, nestedToo bool) []span {
	if !json.Valid(doc) {
		return nil
	}
	var spans []span
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var walk func(path []string, wanted bool)
	walk = func(path []string, wanted bool) {
		before := int(dec.InputOffset())
		tok, err := dec.Token()
		if err != nil {
			panic(err)
		}
		switch tok {
		case json.Delim('{'):
			for dec.More() {
				k, err := dec.Token()
				if err != nil {
					panic(err)
				}
				p := append(slices.Clone(path), k.(string))
				top := len(p) == 1 && p[0] == "model"
				inner := nestedToo && len(p) == 2 && p[1] == "model" && (p[0] == "response" || p[0] == "message")
				walk(p, top || inner)
			}
			_, _ = dec.Token()
			return
		case json.Delim('['):
			for dec.More() {
				walk(append(slices.Clone(path), "[]"), false)
			}
			_, _ = dec.Token()
			return
		}
		if _, isString := tok.(string); isString && wanted {
			to := int(dec.InputOffset())
			from := before + bytes.IndexByte(doc[before:to], '"')
			if to-from <= MaxModelBytes {
				spans = append(spans, span{from, to})
			}
		}
	}
	walk(nil, false)
	return spans
}

// referenceSSE parses the stream event by event as the SSE rules say and maps the spans back.
func referenceSSE(body []byte) []span {
	var spans []span
	var data []byte
	var at []int // at[i] is where data[i] stands in body
	flush := func() {
		for _, s := range referenceJSON(data, true) {
			spans = append(spans, span{at[s.from], at[s.to-1] + 1})
		}
		data, at = nil, nil
	}
	for i := 0; i < len(body); {
		end := i
		for end < len(body) && body[end] != '\n' && body[end] != '\r' {
			end++
		}
		line := body[i:end]
		switch {
		case len(line) == 0:
			flush()
		case bytes.HasPrefix(line, []byte("data:")):
			from := i + len("data:")
			if from < end && body[from] == ' ' {
				from++
			}
			for j := from; j < end; j++ {
				data, at = append(data, body[j]), append(at, j)
			}
			data, at = append(data, '\n'), append(at, end)
		}
		i = end
		if i < len(body) && body[i] == '\r' {
			i++
			if i < len(body) && body[i] == '\n' {
				i++
			}
		} else {
			i++
		}
	}
	flush() // an event without its blank line counts too
	return spans
}

// referenceNDJSON takes each line for itself and tells whether one of them says that it is the last.
func referenceNDJSON(body []byte) (spans []span, done bool) {
	at := 0
	for line := range bytes.Lines(body) {
		for _, s := range referenceJSON(line, false) {
			spans = append(spans, span{at + s.from, at + s.to})
		}
		var members map[string]json.RawMessage
		done = done || json.Unmarshal(line, &members) == nil && string(members["done"]) == "true"
		at += len(line)
	}
	return spans, done
}

func replace(body []byte, spans []span, with string) []byte {
	var out []byte
	from := 0
	for _, s := range spans {
		out = append(out, body[from:s.from]...)
		out = append(out, with...)
		from = s.to
	}
	return append(out, body[from:]...)
}
