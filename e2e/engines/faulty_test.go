//go:build engines

package engines

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

// faulty is a server that takes each request and answers none: for the model
// "silent" it says nothing, for any other it hangs up.
type faulty struct {
	*httptest.Server
	asked atomic.Int64
}

func startFaulty() *faulty {
	f := &faulty{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		body, _ := io.ReadAll(r.Body)
		f.asked.Add(1)
		if strings.Contains(string(body), `"`+modelSilent+`"`) {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}))
	return f
}

func (f *faulty) address() string { return f.Listener.Addr().String() }
