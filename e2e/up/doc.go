// Package up runs the real binary: `iop up`, doing what its first lines say (the
// printed curl line goes to a shell, as a person would paste it), and an Edge and
// a Node as two processes over TLS, as the README sets them up.
package up
