package openai

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
)

const maxRequestID = 128

// requestID is the client's x-request-id if it is a sane one, else a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); saneID(id) {
		return id
	}
	var b [12]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return "req_" + hex.EncodeToString(b[:])
}

func saneID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
