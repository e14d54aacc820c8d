package webui

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// begin sends a request over HTTP/1.1 whose body does not come whole, and returns
// its connection.
func begin(t *testing.T, url, head string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = fmt.Fprintf(c, "%s\r\nContent-Length: 100\r\n\r\n{", head)
	require.NoError(t, err)
	return c
}

// requireEnded waits until the server has closed the connection.
func requireEnded(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	require.NoError(t, err, "the connection stands")
}

// Nobody holds a connection with a body that does not come.
func TestABodyThatDoesNotComeEndsTheConnection(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"read": func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			require.Error(t, err)
		},
		"not read": func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(Hurried(h, 100*time.Millisecond))
			t.Cleanup(server.Close)
			requireEnded(t, begin(t, server.URL, "POST / HTTP/1.1\r\nHost: localhost"))
		})
	}
}

// readLimit notes until when the rest of a request may come.
type readLimit struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (r *readLimit) SetReadDeadline(at time.Time) error {
	r.at = at
	return nil
}

// What is answered without a look at the body does not wait for it either.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	guard := guard()
	for name, c := range map[string]struct {
		h            http.Handler
		method, host string
		fields       fields
	}{
		"page":                 {sample(), "GET", "localhost", nil},
		"no page":              {sample(), "POST", "localhost", nil},
		"wrong host":           {guard.Page(reached()), "POST", "evil.example", nil},
		"wrong origin":         {guard.API(reached()), "POST", "localhost", fields{"Origin": "https://evil.example"}},
		"wrong host of an API": {guard.API(reached()), "POST", "evil.example", fields{"Origin": "https://evil.example"}},
		"wrong preflight":      {guard.API(reached()), "OPTIONS", "localhost", fields{"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, Path, strings.NewReader("{"))
			r.Host = c.host
			for name, value := range c.fields {
				r.Header.Set(name, value)
			}
			w := &readLimit{ResponseRecorder: httptest.NewRecorder()}
			c.h.ServeHTTP(w, r)
			require.NotEqual(t, http.StatusTeapot, w.Code)
			require.WithinDuration(t, time.Now().Add(bodyPatience), w.at, bodyPatience/2)
		})
	}
}

// A call lasts for as long as it likes, and the connection serves the next one.
func TestACallThatIsToldAtOnceMayLast(t *testing.T) {
	const limit = 100 * time.Millisecond
	server := httptest.NewServer(Hurried(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		select {
		case <-r.Context().Done():
			t.Error("it was taken for one that has gone")
		case <-time.After(3 * limit): // what is not to happen has this long for it
		}
		_, _ = io.WriteString(w, "done")
	}), limit))
	defer server.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, err)
	defer c.Close()
	answers := bufio.NewReader(c)
	for _, body := range []string{"ask", "", "ask"} {
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		require.NoError(t, err)
		res, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "done", string(text))
	}
}
