package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// Hash is the SHA-256 of a secret.
type Hash [sha256.Size]byte

// String hides the hash.
func (Hash) String() string { return "(hash)" }

// GoString hides the hash from %#v.
func (Hash) GoString() string { return "(hash)" }

// ParseHash reads 64 hexadecimal digits of either case. Its error does not
// repeat them: people paste the secret itself by mistake.
func ParseHash(text string) (Hash, error) {
	var h Hash
	if b, err := hex.DecodeString(text); err == nil && len(b) == len(h) {
		return Hash(b), nil
	}
	return h, fmt.Errorf("a SHA-256 has 64 hexadecimal digits; found %d characters", len(text))
}

func hashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// HashToken is the SHA-256 of a secret as configuration files have it: 64
// lower-case hexadecimal digits.
func HashToken(secret string) string {
	h := hashOf(secret)
	return hex.EncodeToString(h[:])
}

// HashOf is the SHA-256 of a secret.
func HashOf(secret string) Hash { return hashOf(secret) }

// The prefixes of secrets, by which people, and programs that look for leaked
// secrets, tell what one is.
const (
	PrefixKey   = "iop-key-"
	PrefixRead  = "iop-read-"
	PrefixAdmin = "iop-admin-"
	PrefixNode  = "iop-node-"
	PrefixJoin  = "iop-join-"
)

// NewToken makes a secret of 256 random bits: the prefix, which tells people
// what it is for, and 43 characters of unpadded base64url.
func NewToken(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// NewID makes a short random name for something, which is no secret: 8 hexadecimal
// digits.
func NewID() string {
	var b [4]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return hex.EncodeToString(b[:])
}

// BearerToken takes the secret out of an Authorization header: the scheme in any
// case, one or more spaces, the secret (RFC 6750, RFC 9110). False means that
// there is none: another scheme, or nothing after it.
func BearerToken(header string) (string, bool) {
	header = strings.Trim(header, " \t")
	const scheme = "bearer"
	if len(header) <= len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	rest := header[len(scheme):]
	secret := strings.TrimLeft(rest, " \t")
	if len(secret) == len(rest) || secret == "" || strings.ContainsAny(secret, " \t") {
		return "", false
	}
	return secret, true
}

// ClientSecret takes the secret out of a client's header: a bearer token, or where there is none x-api-key, as Anthropic's clients send it. Of
// two that differ the bearer token counts alone: a wrong one is never made good by the other. "" means that there is none.
func ClientSecret(h http.Header) string {
	if secret, given := BearerToken(h.Get("Authorization")); given {
		return secret
	}
	return strings.Trim(h.Get("X-Api-Key"), " \t")
}
