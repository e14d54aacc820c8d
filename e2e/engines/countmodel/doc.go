// Package countmodel builds a language model that counts: a few hundred
// kilobytes that a real engine loads and runs, and whose answers a test knows in
// advance. "go 97" is answered " 98 99 100".
//
// # Rules
//
// The last number of the prompt, 0 to 999, decides the answer:
//
//	1 to 799, not a hundred    counts up to the next hundred and stops: 97 gives " 98 99 100"
//	0                          counts to 100
//	100, 200, … 800            stops at once: an empty answer
//	801 to 999                 counts and, after 999, goes on with 801: never stops
//
// A prompt that ends in anything else is answered " 0 1 2 … 100". [Answer] is
// the same rule in Go. As every start has an answer of its own, a test that asks
// different starts at once sees an answer that went to the wrong client.
//
// # How it works
//
// The model is an ordinary llama whose attention and feed-forward weights are
// zero, so what reaches the output layer is the embedding of the last token
// alone, scaled to a fixed length. Every token has an address: its number
// written in base 12 with three digits, each digit a one at its place in a
// row of twelve. The output row of a token is its own address; the embedding of
// a token is the address of the token that has to follow. The right successor
// then matches in three digits and any other in two at most, and the output
// scale makes that difference decisive at every usual temperature, top-k and
// repetition penalty.
//
// It owns that construction and must not know which engine runs it or how; the
// layout of the file is package gguf's.
package countmodel
