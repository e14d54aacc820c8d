package webui

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var script = strings.Repeat("const slots = 1;\n", 100)

// sample is a bundle with a file of each sort.
func sample() http.Handler {
	return handler(Site{Edge, `home "1"`}, load(fstest.MapFS{
		"index.html": {Data: []byte("<!doctype html><p>page")},
		"app.js":     {Data: []byte(script)},
		"icon.svg":   {Data: []byte("<svg/>")},
	}))
}

func ask(h http.Handler, method, path string, fields ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(all)
}

func TestHandler(t *testing.T) {
	h := sample()
	for _, c := range []struct {
		method, path string
		status       int
		kind, cache  string
		body         string
	}{
		{"GET", "/dashboard/", 200, "text/html; charset=utf-8", "no-store", "<p>page"},
		{"GET", "/dashboard/index.html", 200, "text/html; charset=utf-8", "no-store", "<p>page"},
		{"HEAD", "/dashboard/", 200, "text/html; charset=utf-8", "no-store", ""},
		{"GET", "/dashboard/app.js", 200, "text/javascript; charset=utf-8", "no-cache", script},
		{"GET", "/dashboard/icon.svg", 200, "image/svg+xml", "no-cache", "<svg/>"},
		{"GET", "/dashboard/site.json", 200, "application/json", "no-store", `{"kind":"edge","name":"home \"1\""}`},
		{"GET", "/dashboard/old.js", 404, "text/plain; charset=utf-8", "", "not found"},
		{"GET", "/dashboard/../app.js", 404, "text/plain; charset=utf-8", "", "not found"},
		{"POST", "/dashboard/", 405, "text/plain; charset=utf-8", "", "GET or HEAD"},
		{"OPTIONS", "/dashboard/app.js", 405, "text/plain; charset=utf-8", "", "GET or HEAD"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			got := ask(h, c.method, c.path)
			require.Equal(t, c.status, got.StatusCode)
			require.Equal(t, c.kind, got.Header.Get("Content-Type"))
			require.Equal(t, c.cache, got.Header.Get("Cache-Control"))
			require.Contains(t, text(t, got), c.body)
			require.Contains(t, got.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'")
			require.NotContains(t, got.Header.Get("Content-Security-Policy"), "unsafe")
			require.Equal(t, "nosniff", got.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", got.Header.Get("Referrer-Policy"))
			require.Equal(t, "same-origin", got.Header.Get("Cross-Origin-Opener-Policy"))
			require.Equal(t, "same-origin", got.Header.Get("Cross-Origin-Resource-Policy"))
			if c.status == 405 {
				require.Equal(t, "GET, HEAD", got.Header.Get("Allow"))
			}
		})
	}
}

// Redirects are relative: a proxy may have added a path of its own.
func TestHandler_SendsToThePage(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/iop", sample()))
	defer server.Close()
	for path, want := range map[string]string{
		"/dashboard":               "/iop/dashboard/",
		"/dashboard/history":       "/iop/dashboard/#/history",
		"/dashboard/edges/a%2Fb/c": "/iop/dashboard/#/edges/a%2Fb/c",
		"/dashboard//evil":         "/iop/dashboard/#//evil",
	} {
		got, err := server.Client().Get(server.URL + "/iop" + path)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		require.Equal(t, 200, got.StatusCode, path)
		require.Equal(t, server.URL+want, got.Request.URL.String())
	}
}

func TestHandler_AFileThatIsKnownIsNotSentAgain(t *testing.T) {
	h := sample()
	for _, coding := range []string{"", "gzip"} {
		first := ask(h, "GET", "/dashboard/app.js", "Accept-Encoding", coding)
		tag := first.Header.Get("ETag")
		require.NotEmpty(t, tag)
		again := ask(h, "GET", "/dashboard/app.js", "Accept-Encoding", coding, "If-None-Match", tag)
		require.Equal(t, http.StatusNotModified, again.StatusCode)
		require.Equal(t, tag, again.Header.Get("ETag"))
		require.Empty(t, text(t, again))
		require.Equal(t, 200, ask(h, "GET", "/dashboard/app.js", "Accept-Encoding", coding, "If-None-Match", `"other"`).StatusCode)
	}
	require.NotEqual(t, ask(h, "GET", "/dashboard/app.js").Header.Get("ETag"),
		ask(h, "GET", "/dashboard/app.js", "Accept-Encoding", "gzip").Header.Get("ETag"), "two texts, two tags")
	require.Empty(t, ask(h, "GET", "/dashboard/").Header.Get("ETag"))
}

func TestHandler_Gzip(t *testing.T) {
	h := sample()
	for field, zipped := range map[string]bool{
		"gzip": true, "GZIP": true, "br, gzip;q=0.5": true, "gzip; q=1.0": true,
		"": false, "br": false, "gzip;q=0": false, "gzip; q=0.000": false, "identity": false,
	} {
		got := ask(h, "GET", "/dashboard/app.js", "Accept-Encoding", field)
		require.Equal(t, "Accept-Encoding", got.Header.Get("Vary"))
		if !zipped {
			require.Empty(t, got.Header.Get("Content-Encoding"), field)
			require.Equal(t, script, text(t, got), field)
			continue
		}
		require.Equal(t, "gzip", got.Header.Get("Content-Encoding"), field)
		z, err := gzip.NewReader(got.Body)
		require.NoError(t, err)
		plain, err := io.ReadAll(z)
		require.NoError(t, err)
		require.Equal(t, script, string(plain))
	}
	require.Empty(t, ask(h, "GET", "/dashboard/icon.svg", "Accept-Encoding", "gzip").Header.Get("Content-Encoding"), "it would be longer")
}

// The bundle of this very tree.
func TestU16_TheBundleIsSmallAndWhole(t *testing.T) {
	files := bundle()
	require.Contains(t, files, index)
	total := 0
	for name, f := range files {
		if name == "licenses.md" {
			continue // for people who ask for it; the page does not load it
		}
		if f.gzip != nil {
			total += len(f.gzip)
		} else {
			total += len(f.plain)
		}
		require.NotEqual(t, "application/octet-stream", f.kind, "%s has a type of its own", name)
	}
	require.LessOrEqual(t, total, 150<<10, "bytes, gzipped")
	got := ask(Handler(Site{Fleet, "all"}), "GET", "/dashboard/")
	require.Equal(t, 200, got.StatusCode)
	page := text(t, got)
	require.NotRegexp(t, `(src|href)="(https?:)?//`, page, "nothing from elsewhere")
	require.NotRegexp(t, `<script>|<style|\son\w+=|\sstyle=`, page, "nothing that the policy refuses")
}
