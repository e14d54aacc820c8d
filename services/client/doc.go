// Package client reaches an Edge or a Control Plane from a Go program: the typed
// APIs of gen/go over one HTTP/2 connection, with a credential and, where the
// certificate is of one's own making, its pin.
//
// It must not know what serves the calls.
package client
