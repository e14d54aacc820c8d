package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/iop-dev/iop/gen"
)

// Path is where the dashboard is: the page itself is at Path, all else below it.
const Path = "/dashboard/"

// Kind says whose state a page shows.
type Kind string

// What serves a dashboard.
const (
	Edge  Kind = "edge"
	Fleet Kind = "fleet"
)

// Site is what the page is told of who serves it, as site.json.
type Site struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// index is the file that Path itself is.
const index = "index.html"

// patience is how long a client may take to read one file.
const patience = time.Minute

// policy lets the page load and call what comes from its own origin, run no
// script that is not a file, and appear in nobody's frame. data: is for images
// that style sheets carry with them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one file of the dashboard.
type file struct {
	kind     string // Content-Type
	tag      string // of plain, without quotes
	plain    []byte
	gzip     []byte // nil where it saves nothing
	volatile bool   // never kept by a cache
}

// bundle is every file by its path below the folder. The files are in the binary:
// that they cannot be read is a broken build.
var bundle = sync.OnceValue(func() map[string]*file {
	root, err := fs.Sub(gen.Web, "web")
	if err != nil {
		panic(err)
	}
	return load(root)
})

func load(root fs.FS) map[string]*file {
	files := map[string]*file{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		files[name] = newFile(name, text)
		return err
	})
	if err != nil {
		panic(err)
	}
	return files
}

func newFile(name string, text []byte) *file {
	sum := sha256.Sum256(text)
	f := &file{kind: contentType(name), plain: text, tag: base64.RawURLEncoding.EncodeToString(sum[:12])}
	var small bytes.Buffer
	z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression) // fails for other levels only
	_, _ = z.Write(text)                                      // a buffer takes everything
	_ = z.Close()
	if small.Len() < len(text) {
		f.gzip = small.Bytes()
	}
	return f
}

// contentType is by the name alone, unlike mime.TypeByExtension, which asks the
// machine: nosniff makes a wrong type a broken page.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".json", ".webmanifest":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".md", ".txt":
		return "text/plain; charset=utf-8"
	default:
		return "application/octet-stream"
	}
}

// Handler serves the dashboard at Path and below, and sends who asks for it
// without its last slash there.
func Handler(site Site) http.Handler { return handler(site, bundle()) }

func handler(site Site, files map[string]*file) http.Handler {
	about, _ := json.Marshal(site) // two strings: cannot fail
	told := newFile("site.json", about)
	told.volatile = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hurry(w, bodyPatience)
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the dashboard is read with GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		name, below := strings.CutPrefix(r.URL.Path, Path)
		if !below {
			// Relative, so that it holds behind a proxy that adds a path of its own.
			h.Set("Location", strings.TrimPrefix(Path, "/"))
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		switch f := files[name]; {
		case name == "site.json":
			told.serve(w, r)
		case f != nil && name != index:
			f.serve(w, r)
		case name == "" || name == index:
			page := *files[index]
			page.volatile = true
			page.serve(w, r)
		case path.Ext(name) == "":
			// What the page shows is named by the fragment.
			escaped := strings.TrimPrefix(r.URL.EscapedPath(), Path)
			h.Set("Location", "./"+strings.Repeat("../", strings.Count(escaped, "/"))+"#/"+escaped)
			w.WriteHeader(http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
}

// serve answers with the file. The names of assets stay the same from version to
// version, so caches ask each time and are mostly told that theirs is good.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	text, tag := f.plain, f.tag
	if f.gzip != nil && accepts(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text, tag = f.gzip, f.tag+"-gzip"
	}
	if f.volatile {
		h.Set("Cache-Control", "no-store")
	} else {
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", `"`+tag+`"`)
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(patience)) // unsupported only in writers that are no connection
	defer func() {
		_ = control.Flush() // the end of it, while the limit holds
		_ = control.SetWriteDeadline(time.Time{})
	}()
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// accepts reads an Accept-Encoding field, as far as "this one, unless q=0".
func accepts(field, coding string) bool {
	for item := range strings.SplitSeq(field, ",") {
		name, weight, _ := strings.Cut(item, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		q, given := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
		return !given || strings.Trim(q, "0.") != ""
	}
	return false
}
