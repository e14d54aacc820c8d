package provider

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"
)

// discard is a Writer that nobody waits for.
type discard struct{}

func (discard) Frame(*Frame) error { return nil }

// BenchmarkRun compares an exchange with the bare transport below it.
func BenchmarkRun(b *testing.B) {
	body := strings.Repeat("x", 1024)
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	defer stub.Close()
	b.Run("exchange", func(b *testing.B) {
		s := NewSet(Config{Clock: clockwork.NewRealClock(), Log: quiet()})
		s.Apply(list(described("vllm", stub.URL)))
		defer s.Close(b.Context())
		request := begin(body)
		request.IdleTimeoutMs = 600_000
		raw := []byte(body)
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Run(b.Context(), request, raw, discard{})
		}
	})
	b.Run("transport", func(b *testing.B) {
		client := &http.Client{Transport: newTransport()}
		defer client.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			resp, err := client.Post(stub.URL, "application/json", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
}
