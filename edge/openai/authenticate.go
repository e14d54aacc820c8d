package openai

import (
	"net/http"

	"github.com/iop-dev/iop/edge/auth"
)

// authenticate finds the caller's key: in Authorization as a bearer token, or in x-api-key. It is nil where no key is needed.
func authenticate(r *http.Request, keys Keys) (*auth.APIKey, *problem) {
	if keys.Open() {
		return nil, nil
	}
	refused := func(message string) *problem {
		return &problem{status: http.StatusUnauthorized, code: "invalid_api_key", kind: "authentication_error", message: message}
	}
	secret := auth.ClientSecret(r.Header)
	if secret == "" {
		return nil, refused("An API key is needed: send Authorization: Bearer KEY, or x-api-key: KEY.")
	}
	key, ok := keys.APIKey(secret)
	if !ok {
		return nil, refused("The API key is not valid.")
	}
	return key, nil
}
