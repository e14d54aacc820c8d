package webui

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bothVersions serves h over HTTP/1 and over HTTP/2 without TLS.
func bothVersions(t *testing.T, h http.Handler) (url string) {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func clientOf(t *testing.T, http2 bool) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func version(http2 bool) string {
	if http2 {
		return "HTTP/2"
	}
	return "HTTP/1"
}

// A watcher that never reads is given up, though its connection stands.
func TestAStuckReaderIsGivenUp(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(version(http2), func(t *testing.T) {
			ended := make(chan error, 1)
			url := bothVersions(t, EndStuck(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				part := bytes.Repeat([]byte("x"), 200<<10)
				for {
					_, err := w.Write(part)
					if err == nil {
						err = http.NewResponseController(w).Flush()
					}
					if err != nil {
						ended <- err
						return
					}
				}
			}), 200*time.Millisecond))
			res, err := clientOf(t, http2).Get(url) // nobody reads its body
			require.NoError(t, err)
			defer res.Body.Close()
			select {
			case err := <-ended:
				require.Error(t, err)
			case <-time.After(30 * time.Second):
				t.Fatal("it writes for ever")
			}
		})
	}
}

// recorder notes under which deadline it is written to.
type recorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
	pieces   []int
}

func (r *recorder) SetWriteDeadline(at time.Time) error {
	r.deadline = at
	return nil
}

func (r *recorder) Write(p []byte) (int, error) {
	if time.Until(r.deadline) <= 0 {
		return 0, errors.New("written without a limit")
	}
	r.pieces = append(r.pieces, len(p))
	return r.ResponseRecorder.Write(p)
}

// Neither silence between writes nor a reader of something large that takes its
// time is what the limit is about, and the connection serves others afterwards.
func TestAPatientReaderIsNotGivenUp(t *testing.T) {
	r := &recorder{ResponseRecorder: httptest.NewRecorder()}
	EndStuck(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, err := w.Write(make([]byte, takenAtOnce*2+1))
		require.NoError(t, err)
		require.Equal(t, takenAtOnce*2+1, n)
		require.True(t, r.deadline.IsZero())
		w.(http.Flusher).Flush()
		require.True(t, r.deadline.IsZero())
		_, err = w.Write(nil)
		require.NoError(t, err)
	}), time.Hour).ServeHTTP(r, httptest.NewRequest(http.MethodPost, "/", nil))
	require.Equal(t, []int{takenAtOnce, takenAtOnce, 1, 0}, r.pieces)
	require.True(t, r.Flushed)
	require.True(t, r.deadline.IsZero())
}
