// Package discover finds the inference servers that run on this machine and
// says what each is, which models it lists and how many requests it takes at
// once.
//
// It owns the well-known addresses and the marks by which a server is known. A
// server is named only for what it answers: an address that merely speaks the
// OpenAI API is reported as unknown and left alone, and an IOP Edge is skipped.
// It sends GET requests only, follows no redirect, uses no proxy, and must not
// know what is done with its findings.
package discover
