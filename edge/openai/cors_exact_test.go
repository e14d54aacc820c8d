package openai

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An origin is its scheme, host and port, and near is not the same. Credentials
// are allowed to nobody, so that "*" opens no door which a cookie would pass.
func TestOriginsAreExact(t *testing.T) {
	for name, c := range map[string]struct {
		allowed, refused []string
		list             []string
	}{
		"one": {
			list:    []string{"https://chat.example.org"},
			allowed: []string{"https://chat.example.org", "HTTPS://CHAT.example.org"},
			refused: []string{
				"http://chat.example.org", "https://chat.example.org:8443", "https://chat.example.org:443", "https://chat.example.org.evil.example",
				"https://evil.chat.example.org", "https://chat.example.orgs", "https://chat.example", "chat.example.org", "https://chat.example.org/", "null", "*",
			},
		},
		"with a port": {
			list:    []string{"http://localhost:3000"},
			allowed: []string{"http://localhost:3000"},
			refused: []string{"http://localhost", "http://localhost:30000", "https://localhost:3000", "http://127.0.0.1:3000", "null"},
		},
		"all":  {list: []string{"*"}, allowed: []string{"https://any.example", "http://localhost:1", "null"}},
		"none": {refused: []string{"https://chat.example.org", "null", "*"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			s.AllowedOrigins = c.list
			over(t, answer(whole(200, "application/json", `{}`)), s, func(r *rig) {
				ask := func(origin string) []reply {
					return []reply{
						r.chat(hello, "Origin", origin),
						r.do(r.request(http.MethodGet, "/v1/models", "", "Origin", origin)),
						r.do(r.request(http.MethodOptions, "/v1/models", "", "Origin", origin, "Access-Control-Request-Method", "GET")),
					}
				}
				for _, origin := range c.allowed {
					for _, got := range ask(origin) {
						require.Equal(r, []string{origin}, got.Header.Values("Access-Control-Allow-Origin"))
						require.Equal(r, "Origin", got.Header.Get("Vary"), "a cache keeps the answers to two origins apart")
						require.Empty(r, got.Header.Values("Access-Control-Allow-Credentials"))
					}
				}
				for _, origin := range c.refused {
					for _, got := range ask(origin) {
						for field := range got.Header {
							require.NotContains(r, field, "Access-Control-", origin)
						}
					}
				}
			})
		})
	}
}
