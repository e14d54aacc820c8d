// Package up is what `iop up` decides: which providers to serve, with what
// configuration, and what to tell the person who started it.
//
// The Edge and the Node it describes are ordinary ones which talk over real
// loopback HTTP/2; nothing here is a shortcut around the wire. The package
// starts no process and listens on nothing: cmd/iop does.
package up
