// Package tap stands between an HTTP/1.1 client and its server, passes every
// byte on unchanged and keeps a copy with the time of each.
//
// It works on TCP, below HTTP, so that what it shows is what was on the wire,
// half-closed connections included: those pass through as such, because a client
// that half-closes and reads on is what some tests look for. Only when asked for
// [Tap.Exchanges] does it parse its copies.
//
// It must not know what the parties talk about, nor alter or delay it.
package tap
