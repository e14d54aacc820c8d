package webui

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

const chat = "https://chat.example.org"

func reached() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
}

func guard(origins ...string) *Guard {
	return &Guard{Origins: func() []string { return origins }, Names: []string{"edge.example.net"}}
}

// fields are a request's headers; Host is one of them.
type fields map[string]string

func send(h http.Handler, method string, f fields) *http.Response {
	r := httptest.NewRequest(method, "/iop.control.v1.ControlService/GetEdgeNodeSnapshot", nil)
	r.Host = "127.0.0.1:8484"
	for name, value := range f {
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestGuard_WhoMayCall(t *testing.T) {
	for name, c := range map[string]struct {
		fields fields
		passes bool
	}{
		"a program":                         {fields{}, true},
		"a program by any name":             {fields{"Host": "iop.example.com"}, true},
		"the page itself":                   {fields{"Origin": "http://127.0.0.1:8484", "Sec-Fetch-Site": "same-origin"}, true},
		"the page, off loopback":            {fields{"Host": "10.0.0.5:8484", "Origin": "http://10.0.0.5:8484"}, true},
		"the page by the listener's name":   {fields{"Host": "edge.example.net:8484", "Origin": "http://edge.example.net:8484"}, true},
		"another page":                      {fields{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, false},
		"another page of an old browser":    {fields{"Origin": "https://evil.example"}, false},
		"another port of this machine":      {fields{"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"}, false},
		"a page without an origin":          {fields{"Origin": "null"}, false},
		"a name that was pointed here":      {fields{"Host": "evil.example:8484", "Origin": "http://evil.example:8484", "Sec-Fetch-Site": "same-origin"}, false},
		"the same, without an origin":       {fields{"Host": "evil.example:8484", "Sec-Fetch-Site": "same-origin"}, false},
		"a configured page":                 {fields{"Origin": chat, "Sec-Fetch-Site": "cross-site"}, true},
		"a configured page by another name": {fields{"Host": "chat.example.org", "Origin": chat, "Sec-Fetch-Site": "same-origin"}, true},
		"one that is near a configured one": {fields{"Origin": chat + ".evil.example"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := send(guard(chat).API(reached()), "POST", c.fields)
			want := http.StatusForbidden
			if c.passes {
				want = http.StatusTeapot
			}
			require.Equal(t, want, got.StatusCode)
			require.Equal(t, "Origin", got.Header.Get("Vary"))
			require.Empty(t, got.Header.Get("Access-Control-Allow-Credentials"))
			if c.fields["Origin"] == chat {
				require.Equal(t, chat, got.Header.Get("Access-Control-Allow-Origin"))
				require.Contains(t, got.Header.Get("Access-Control-Expose-Headers"), "Grpc-Status")
			} else {
				require.Empty(t, got.Header.Get("Access-Control-Allow-Origin"))
			}
		})
	}
}

// K14: a page of a configured origin may send what Connect and gRPC-Web clients
// send, and a page of another one is told nothing.
func TestCase_K14_Preflight(t *testing.T) {
	wanted := "authorization,connect-protocol-version,connect-timeout-ms,content-type,x-grpc-web"
	ask := func(g *Guard, origin string) *http.Response {
		return send(g.API(reached()), "OPTIONS", fields{
			"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted, "Access-Control-Request-Private-Network": "true",
		})
	}
	for _, g := range []*Guard{guard(chat), guard("*")} {
		got := ask(g, chat)
		require.Equal(t, http.StatusNoContent, got.StatusCode)
		require.Equal(t, chat, got.Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "GET, POST", got.Header.Get("Access-Control-Allow-Methods"))
		require.Equal(t, wanted, got.Header.Get("Access-Control-Allow-Headers"))
		require.Equal(t, "true", got.Header.Get("Access-Control-Allow-Private-Network"))
	}
	for _, got := range []*http.Response{ask(guard(chat), "https://evil.example"), ask(guard(), chat), ask(&Guard{}, chat)} {
		require.Equal(t, http.StatusForbidden, got.StatusCode)
		for name := range got.Header {
			require.NotContains(t, name, "Access-Control-")
		}
	}
}

func TestGuard_NamesOfThisServer(t *testing.T) {
	page := guard(chat).Page(reached())
	for host, known := range map[string]bool{
		"127.0.0.1:8484": true, "[::1]:8484": true, "[::1]": true, "192.168.1.20": true, "localhost:8484": true, "LOCALHOST": true, "dash.localhost": true,
		"gpu-box:8484": true, "gpu-box.local": true, "gpu-box.home.arpa:80": true, "iop.internal": true, "localhost.": true,
		"edge.example.net:8484": true, "EDGE.example.net.": true, "chat.example.org": true,
		"evil.example:8484": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "local.example": false, "evil.edge.example.net": false,
	} {
		got := send(page, "GET", fields{"Host": host})
		require.Equal(t, known, got.StatusCode == http.StatusTeapot, host)
		if !known {
			require.Equal(t, http.StatusForbidden, got.StatusCode)
			require.Contains(t, text(t, got), "allowed_origins", "says what to do")
		}
	}
	r := httptest.NewRequest("GET", "https://any.example/dashboard/", nil)
	r.TLS = &tls.ConnectionState{}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	require.Equal(t, http.StatusTeapot, w.Code, "the certificate has vouched for the name")
}
