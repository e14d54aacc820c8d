package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
)

const page = "https://chat.example.org"

func TestCase_I04_I05_I08_Preflight(t *testing.T) {
	s := settings()
	s.Keys = auth.NewKeyring(auth.Credentials{})
	s.AllowedOrigins = []string{page}
	over(t, new(upstream), s, func(r *rig) {
		for path, methods := range map[string]string{"/v1/chat/completions": "POST, OPTIONS", "/v1/models": "GET, HEAD, OPTIONS", "/v1/models/m": "GET, HEAD, OPTIONS", "/healthz": "GET, HEAD, OPTIONS"} {
			wanted := "authorization, content-type, x-stainless-os, x-stainless-retry-count"
			got := r.do(r.request("OPTIONS", path, "", "Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", wanted))
			require.Equal(r, 204, got.StatusCode)
			require.Equal(r, page, got.Header.Get("Access-Control-Allow-Origin"))
			require.Equal(r, wanted, got.Header.Get("Access-Control-Allow-Headers"))
			require.Equal(r, methods, got.Header.Get("Access-Control-Allow-Methods"))
			require.Equal(r, "Origin", got.Header.Get("Vary"))

			got = r.do(r.request("OPTIONS", path, "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST"))
			require.Equal(r, 204, got.StatusCode)
			require.Empty(r, got.Header.Get("Access-Control-Allow-Origin"))
			require.Empty(r, got.Header.Get("Access-Control-Allow-Methods"))
		}
		require.Empty(r, r.log.String())
	})
}

func TestCase_I09_ErrorsAreReadableByThePage(t *testing.T) {
	s := settings()
	s.AllowedOrigins = []string{page}
	over(t, refuse(&broker.UnavailableError{}), s, func(r *rig) {
		for status, body := range map[int]string{404: `{"model":"nope"}`, 400: `{`, 503: hello} {
			got := r.chat(body, "Origin", page)
			require.Equal(r, status, got.StatusCode)
			require.Equal(r, page, got.Header.Get("Access-Control-Allow-Origin"))
			require.Contains(r, got.Header.Get("Access-Control-Expose-Headers"), "X-Request-Id")
		}
	})
	s.Keys = auth.NewKeyring(auth.Credentials{})
	s.AllowedOrigins = []string{"*"}
	over(t, new(upstream), s, func(r *rig) {
		got := r.chat(hello, "Origin", page)
		r.requireError(got, 401, "invalid_api_key", "authentication_error")
		require.Equal(r, page, got.Header.Get("Access-Control-Allow-Origin"))
	})
	over(t, new(upstream), settings(), func(r *rig) {
		require.Empty(r, r.chat(hello, "Origin", page).Header.Get("Access-Control-Allow-Origin"))
	})
}
