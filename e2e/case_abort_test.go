package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// begun asks under a request id of the test's own and returns once the head of the answer is there.
func (r *rig) begun(ctx context.Context, id, body string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	res, err := r.client.Do(req)
	require.NoError(r.t, err)
	return res
}

// B01 to B04: whenever a client leaves, the request's end is told as cancelled, and at the provider, which would take long, it is over.
func TestCase_B01_B02_B03_B04_TheOutcomeIsCancelled(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		if target == "streams" {
			for range 3 {
				_ = sse(w, chunk(target, "x"))
			}
		}
		<-r.Context().Done() // it would go on for a minute
	})
	r := serving(t, s, 1, []string{"streams", "silent"})

	ctx, leave := context.WithCancel(t.Context())
	res := r.begun(ctx, "b01", chatBody("m-streams", true, ""))
	lines := bufio.NewScanner(res.Body)
	for range 6 { // three events
		require.True(t, lines.Scan())
	}
	leave()
	<-s.goneNews
	res.Body.Close()
	require.Equal(t, "cancelled", r.ended("b01")["outcome"])
	r.quiet()

	for id, stream := range map[string]bool{"b02": false, "b03": true} {
		ctx, leave := context.WithCancel(t.Context())
		_, _, before, _ := s.counts()
		done := make(chan answer, 1)
		go func() {
			done <- r.fetch(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody("m-silent", stream, "")), "X-Request-Id", id)
		}()
		require.Eventually(t, func() bool { _, _, total, _ := s.counts(); return total == before+1 }, 20*time.Second, time.Millisecond)
		if id == "b03" { // B04: and one that waits behind it
			ctx, leave := context.WithCancel(t.Context())
			waits := make(chan answer, 1)
			go func() {
				waits <- r.fetch(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody("m-streams", true, "")), "X-Request-Id", "b04")
			}()
			r.waiting(1)
			leave()
			require.Equal(t, "cancelled", r.ended("b04")["outcome"])
			require.ErrorIs(t, (<-waits).err, context.Canceled)
			r.waiting(0)
		}
		leave()
		<-s.goneNews
		require.ErrorIs(t, (<-done).err, context.Canceled)
		require.Equal(t, "cancelled", r.ended(id)["outcome"])
		r.quiet()
	}
	_, _, total, _ := s.counts()
	require.Equal(t, 3, total, "the one that waited was never sent")
}

// B06: after 50 streams that were broken off one after another, the next request is served and nothing is in flight or waits.
func TestCase_B06_ANormalRequestAfterFiftyAborts(t *testing.T) {
	stream := endless(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if strings.Contains(string(body), `"stream":true`) {
			stream(w, r, body)
			return
		}
		complete(w, asked(t, body), "still here")
	})
	r := single(t, s)
	for i := range 50 {
		ctx, leave := context.WithCancel(t.Context())
		res := r.begun(ctx, fmt.Sprint("b06-", i), chatBody("m", true, ""))
		_, err := res.Body.Read(make([]byte, 16))
		require.NoError(t, err)
		leave()
		res.Body.Close()
		<-s.goneNews
	}
	a := r.chat("b06-normal", chatBody("m", false, ""))
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "still here")
	r.quiet()
	for i := range 50 {
		require.Equal(t, "cancelled", r.ended(fmt.Sprint("b06-", i))["outcome"])
	}
	_, peak, _, _ := s.counts()
	require.Equal(t, 1, peak)
}

// B07: twenty requests to a provider that fails in every way, at capacity 1. Each is told, and the slot is there for the next.
func TestCase_B07_ASlotOutlivesEveryKindOfFailure(t *testing.T) {
	failures := []struct {
		target string
		fail   func(w http.ResponseWriter, r *http.Request)
		status int    // 0 = the connection is aborted
		code   string // "" = the provider's own answer
	}{
		{"502", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, 502, ""},
		{"504", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) }, 504, ""},
		{"silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 504, "provider_timeout"},
		{"closes", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "provider_disconnected"},
		{"resets", func(w http.ResponseWriter, _ *http.Request) { reset(w) }, 502, "provider_disconnected"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3000000")
			_, _ = io.WriteString(w, `{"model":"served","x":"`+strings.Repeat("x", 2<<20))
			panic(http.ErrAbortHandler)
		}, 0, ""},
		{"no-http", func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_, _ = io.WriteString(conn, "ready.\r\n")
				conn.Close()
			}
		}, 502, "provider_disconnected"},
	}
	var targets []string
	for _, f := range failures {
		targets = append(targets, f.target)
	}
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		for _, f := range failures {
			if f.target == target {
				f.fail(w, r)
				return
			}
		}
		complete(w, target, "good")
	})
	var models []object
	for _, target := range append(targets, "good") {
		models = append(models, model(target, "n/p="+target))
	}
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1, object{"request_timeout_ms": 1500}))}, models), "n")
	for i := range 21 {
		f := failures[i%len(failures)]
		a := r.chat(fmt.Sprint("b07-", i), chatBody(f.target, false, ""))
		if f.status == 0 {
			require.Error(t, a.err, "%s: a part passed for the whole", f.target)
			continue
		}
		require.NoError(t, a.err, f.target)
		require.Equal(t, f.status, a.status, f.target)
		if f.code != "" {
			require.Equal(t, f.code, a.code(t), f.target)
		}
	}
	require.Equal(t, http.StatusOK, r.chat("b07-good", chatBody("good", false, "")).status)
	r.quiet()
	_, peak, total, _ := s.counts()
	require.Equal(t, []int{1, 22}, []int{peak, total})
}

// reset ends a connection with a reset.
func reset(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// B09: a slot is held to the end of the stream, long after its head was passed on.
func TestCase_B09_TheNextBeginsWhenTheStreamHasEnded(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		if target == "second" {
			complete(w, target, "second")
			return
		}
		_ = sse(w, chunk(target, "first"))
		if g.wait(r) {
			_ = sse(w, lastChunk(target))
			_ = sse(w, "[DONE]")
		}
	})
	r := serving(t, s, 1, []string{"first", "second"})
	res := r.begun(t.Context(), "b09-first", chatBody("m-first", true, ""))
	defer res.Body.Close()
	second := r.background(t.Context(), chatBody("m-second", false, ""))
	r.waiting(1)
	_, _, total, _ := s.counts()
	require.Equal(t, 1, total)
	g.release()
	require.Contains(t, readAll(t, res), "[DONE]")
	require.Equal(t, http.StatusOK, (<-second).status)
	r.quiet()
	_, peak, _, _ := s.counts()
	require.Equal(t, 1, peak)
}

// B11: an engine that neither notices the client's leave nor hangs up keeps its slot for the grace, and no longer. IOP keeps no opinion of it: it is
// shown available, since it takes the next request.
func TestCase_B11_AHangingProviderKeepsItsSlotForTheGrace(t *testing.T) {
	const grace = time.Second
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	requests := make(chan net.Conn, 2)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
				requests <- conn // and no more of it: neither read nor closed
			}()
		}
	}()
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", "http://"+listener.Addr().String(), 1, object{"cancel_grace_ms": grace.Milliseconds()}))},
		[]object{model("m", "n/p=served")}), "n")
	ctx, leave := context.WithCancel(t.Context())
	res := r.begun(ctx, "b11", chatBody("m", true, ""))
	first := <-requests
	defer first.Close()
	next, stop := context.WithCancel(t.Context())
	waits := r.background(next, chatBody("m", true, ""))
	r.waiting(1)
	left := time.Now()
	leave()
	res.Body.Close()
	second := <-requests // on a connection of its own
	defer second.Close()
	require.GreaterOrEqual(t, time.Since(left), grace, "the slot came back before the provider had its time")
	require.Equal(t, "cancelled", r.ended("b11")["outcome"])
	p := r.snapshot().GetNodes()[0].GetProviders()[0]
	require.EqualValues(t, 1, p.GetInFlight(), "the second one, not the first")
	stop()
	<-waits
	r.quiet()
	p = r.snapshot().GetNodes()[0].GetProviders()[0]
	require.Equal(t, "available", p.GetStatus())
	require.EqualValues(t, 1, p.GetEffectiveCapacity())
}

// B12: a provider dies of an abort. While it is away each request to it has its own error at once, and goes to another candidate if there is one;
// when it is back it serves, without anything being reset.
func TestCase_B12_AProviderThatDiesOfAnAbort(t *testing.T) {
	other := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "other") })
	listener := listenLow(t)
	address := listener.Addr().String()
	var dying *http.Server
	served := make(chan struct{})
	serve := func(l net.Listener) {
		dying = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), `"stream":true`) {
				endless(t)(w, r, body)
				return
			}
			complete(w, asked(t, body), "back")
		})}
		go func() { _ = dying.Serve(l); served <- struct{}{} }()
	}
	serve(listener)
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", "http://"+address, 1), provider("q", other.URL, 1, object{"priority": -1}))},
		[]object{model("alone", "n/p=served"), model("both", "n/p=served", "n/q=served")}, object{"provider_pool": object{"selection": "priority"}}), "n")
	ctx, leave := context.WithCancel(t.Context())
	res := r.begun(ctx, "b12", chatBody("alone", true, ""))
	_, err := res.Body.Read(make([]byte, 16))
	require.NoError(t, err)
	leave()
	res.Body.Close()
	require.NoError(t, dying.Close())
	<-served
	r.quiet()
	for range 3 {
		a := r.ask(t.Context(), chatBody("alone", false, ""))
		require.Equal(t, http.StatusBadGateway, a.status)
		require.Equal(t, "provider_disconnected", a.code(t))
		require.Empty(t, a.header.Get("X-Should-Retry"), "nothing was sent: a client may repeat it")
		a = r.ask(t.Context(), chatBody("both", false, ""))
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "q", a.header.Get("X-Iop-Provider"))
	}
	require.Equal(t, "available", r.snapshot().GetNodes()[0].GetProviders()[0].GetStatus(), "no health is kept of it")
	again, err := net.Listen("tcp", address)
	require.NoError(t, err)
	serve(again)
	for _, m := range []string{"alone", "both"} {
		a := r.ask(t.Context(), chatBody(m, false, ""))
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.body, "back")
	}
	require.NoError(t, dying.Close())
	<-served
	r.quiet()
}
