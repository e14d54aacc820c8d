package estimate

const (
	// fileBytesPerToken prices a form's files: sound of 16 kB a second, and about as many tokens as engines make of one.
	fileBytesPerToken = 1 << 10
	// maxFileTokens bounds that price: engines that transcribe work through a recording in windows of seconds and never hold it as one context.
	maxFileTokens = 32 << 10
)

// OfForm prices a form by the bytes of its text fields, a token each since no tokenizer makes more of them, and of its files. What providers
// have counted says nothing of either.
func OfForm(text, files, threshold int) Input {
	e := Estimate{Text: baseTokens + text, Foreign: true}
	if files > 0 {
		e.Fixed = min(mediaTokens+files/fileBytesPerToken, maxFileTokens)
	}
	return Input{Estimate: e, Tokens: e.Tokens(), Threshold: threshold}
}
