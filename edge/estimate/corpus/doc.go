// Package corpus makes the texts that the input estimate is fitted to and judged by: samples of many kinds of text as clients send them, each
// with the tokens that real tokenizers make of it.
//
// The prose is the Universal Declaration of Human Rights (public domain) in many languages, code is what the Go distribution ships, and the
// rest is generated from a seed. Only the fit and tests import it: the tokenizers are not part of any binary of IOP.
package corpus
