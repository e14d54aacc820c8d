// Package edgewire reads one Edge over its control API, by Connect: a
// fleet.Reader.
//
// It owns how an Edge is reached and trusted, and says in words what went wrong.
// It knows nothing of when, and keeps nothing.
package edgewire
