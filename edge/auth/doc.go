// Package auth knows who may call: API keys of clients, admin and read tokens,
// and the tokens of nodes, of the configuration and of those that were issued
// beside it.
//
// It keeps SHA-256 hashes only, never a secret. A presented secret is hashed and
// compared with every entry in constant time, without an early exit, so that an
// answer's timing tells nothing about what is configured. Errors and String
// methods carry names, never secrets or hashes.
//
// The package counts the requests of each API key, over reloads too. It knows no
// configuration file, no HTTP status, and nothing of what a caller wants to do.
package auth
