// Package nodeconfig turns node.yaml into a [Config].
//
// It owns the meaning of the file: the reconnect policy with its explicit
// presence (S17), where the node's own token and the keys of its providers come
// from, and which endpoints a provider may have. Secrets are read from their
// file or environment variable when they are asked for, never kept in the
// configuration, and never part of an error.
//
// It knows nothing of the Edge's configuration: what providers there are, and
// what they can hold, comes over the wire.
package nodeconfig
