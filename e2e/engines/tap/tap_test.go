package tap

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// before starts an HTTP server with a tap in front of it.
func before(t *testing.T, h http.HandlerFunc) (*Tap, *http.Client) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	tap, err := Listen(server.Listener.Addr().String())
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, tap.Close())
		require.NoError(t, tap.Close(), "a second Close changes nothing")
	})
	return tap, &http.Client{Transport: transport}
}

func post(t *testing.T, c *http.Client, tap *Tap, body string) string {
	t.Helper()
	res, err := c.Post("http://"+tap.Address()+"/x", "text/plain", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(answer)
}

func TestExchangesOfAKeptConnectionAreToldApart(t *testing.T) {
	tap, client := before(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.HasPrefix(body, []byte("stream")) {
			for range 3 {
				_, _ = fmt.Fprintf(w, "[%s]", body)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
	})
	assert.Equal(t, "one", post(t, client, tap, "one"))
	assert.Equal(t, "[stream][stream][stream]", post(t, client, tap, "stream"))

	all := tap.Exchanges()
	require.Len(t, all, 2)
	assert.Equal(t, "one", string(all[0].Request))
	assert.Equal(t, http.StatusTeapot, all[0].Status)
	assert.Equal(t, "one", string(all[0].Response))
	assert.Equal(t, "POST", all[1].Method)
	assert.Equal(t, "/x", all[1].Path)
	assert.Equal(t, "text/plain", all[1].Header.Get("Content-Type"))
	assert.Equal(t, "[stream][stream][stream]", string(all[1].Response), "without the chunk framing")
	for _, e := range all {
		assert.True(t, e.Complete)
		assert.False(t, e.Running())
		assert.True(t, e.ServerClosed.IsZero(), "the connection lives on")
		assert.False(t, e.End.Before(e.Start))
	}
	assert.False(t, all[1].Start.Before(all[0].End))
	assert.Equal(t, 1, Peak(all))
}

func TestARunningExchangeIsSeenAndThenItsAbort(t *testing.T) {
	tap, client := before(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // else the answer would end properly, heard by nobody
	})
	res, err := client.Get("http://" + tap.Address() + "/endless")
	require.NoError(t, err)
	first := make([]byte, 5)
	_, err = io.ReadFull(res.Body, first)
	require.NoError(t, err)

	all := tap.Exchanges()
	require.Len(t, all, 1)
	assert.True(t, all[0].Running())
	assert.False(t, all[0].Complete)
	assert.Equal(t, "first", string(all[0].Response))

	require.NoError(t, res.Body.Close()) // breaks the connection off
	require.Eventually(t, func() bool { return !tap.Exchanges()[0].Running() }, 5*time.Second, time.Millisecond)
	e := tap.Exchanges()[0]
	assert.False(t, e.Complete)
	assert.False(t, e.ClientClosed.IsZero())
	assert.Equal(t, e.ServerClosed, e.End)

	tap.Forget()
	assert.Empty(t, tap.Exchanges())
}

func TestAHalfClosedConnectionStaysOpenTheOtherWay(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	tap, err := Listen(server.Addr().String())
	require.NoError(t, err)
	defer func() { _ = tap.Close() }()

	client, err := net.Dial("tcp", tap.Address())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	far, err := server.Accept()
	require.NoError(t, err)
	_, err = io.WriteString(client, "question")
	require.NoError(t, err)
	require.NoError(t, client.(*net.TCPConn).CloseWrite())

	heard, err := io.ReadAll(far) // returns only because the half-close came through
	require.NoError(t, err)
	assert.Equal(t, "question", string(heard))
	_, err = io.WriteString(far, "answer")
	require.NoError(t, err)
	require.NoError(t, far.Close())
	said, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "answer", string(said))
}

func TestAServerThatIsNotThereLooksLikeOne(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	tap, err := Listen(gone.Addr().String())
	require.NoError(t, err)
	defer func() { _ = tap.Close() }()
	client, err := net.Dial("tcp", tap.Address())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	_, err = client.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	assert.Empty(t, tap.Exchanges())
}

func TestPeakSeesOverlap(t *testing.T) {
	arrived := make(chan struct{}, 3)
	leave := make(chan struct{})
	tap, client := before(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-leave
	})
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			res, err := client.Get("http://" + tap.Address())
			if assert.NoError(t, err) {
				_ = res.Body.Close()
			}
		})
	}
	for range 3 {
		<-arrived
	}
	close(leave)
	calls.Wait()
	assert.Equal(t, 3, Peak(tap.Exchanges()))
}

func TestPeakOfAHandoverIsOne(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	assert.Equal(t, 1, Peak([]Exchange{{Start: at(0), End: at(5)}, {Start: at(5), End: at(9)}}))
	assert.Equal(t, 2, Peak([]Exchange{{Start: at(0), End: at(6)}, {Start: at(5), End: at(9)}}))
	assert.Equal(t, 2, Peak([]Exchange{{Start: at(0)}, {Start: at(5), End: at(9)}}), "one that never ends runs still")
	assert.Zero(t, Peak(nil))
}
