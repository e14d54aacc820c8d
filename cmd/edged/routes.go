package edged

import (
	"net/http"
	"strings"

	"github.com/iop-dev/iop/services/webui"
)

// routes sends each Connect service, by the path of its name, to its handler, what
// is the dashboard's to that, a scrape to the metrics, and all else to the rest. Unlike http.ServeMux it
// never answers by itself: a path that is not clean is nobody's, and gets the
// rest's 404 rather than a redirect.
type routes struct {
	services map[string]http.Handler // by "/package.Service/"
	scrape   http.Handler            // at metricsPath; nil = none
	page     http.Handler            // at webui.Path and below; nil = none
	rest     http.Handler            // nil = nothing else is here
}

// edgeMark is a header that every reply carries, by which another IOP knows an
// Edge for what it is: `iop up` does not take one for a provider.
const edgeMark = "X-Iop-Edge"

var edgeMarked = []string{"1"} // never changed; shared by all replies

func (rt *routes) handle(path string, h http.Handler) {
	if rt.services == nil {
		rt.services = map[string]http.Handler{}
	}
	rt.services[path] = h
}

// ServeHTTP serves the request, or says that there is nothing.
func (rt *routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()[edgeMark] = edgeMarked
	if end := strings.LastIndexByte(r.URL.Path, '/'); end > 0 {
		if h := rt.services[r.URL.Path[:end+1]]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
	}
	if rt.scrape != nil && r.URL.Path == metricsPath {
		rt.scrape.ServeHTTP(w, r)
		return
	}
	if rt.page != nil && strings.HasPrefix(r.URL.Path+"/", webui.Path) {
		rt.page.ServeHTTP(w, r)
		return
	}
	if rt.rest == nil {
		http.NotFound(w, r)
		return
	}
	rt.rest.ServeHTTP(w, r)
}
