package llamacpp

import "strconv"

// token is one of the vocabulary's 1359.
type token struct {
	id    int
	piece string
}

// tokenize cuts text up: a space with a number of at most three digits behind it
// is one token, anything else is one a character.
func tokenize(text string) []token {
	const bytesAt, charsAt, numbersAt = 3, 232, 359
	var all []token
	for i := 0; i < len(text); {
		end := i + 1
		for end < len(text) && end <= i+3 && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		switch c := text[i]; {
		case c == ' ' && end > i+1 && (text[i+1] != '0' || end == i+2):
			n, _ := strconv.Atoi(text[i+1 : end])
			all = append(all, token{numbersAt + n, text[i:end]})
			i = end
		case c >= ' ' && c <= '~':
			all = append(all, token{charsAt + int(c), text[i : i+1]})
			i++
		default:
			all = append(all, token{bytesAt + int(c), text[i : i+1]})
			i++
		}
	}
	return all
}

func countTokens(text string) int { return len(tokenize(text)) }
