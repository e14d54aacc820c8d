//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testSpec is a provider of capacity 1.
var testSpec = providerSpec{node: "n", id: "p", kind: "openai", capacity: 1}

func testFake(t *testing.T) (*fake, *verdict, *bytes.Buffer) {
	t.Helper()
	out := new(bytes.Buffer)
	v := newVerdict(out)
	f, err := newFake(testSpec, "127.0.0.1", v, &lag{}, newLedger(v))
	require.NoError(t, err)
	t.Cleanup(f.close)
	return f, v, out
}

// ask opens a connection and sends a request on it.
func ask(t *testing.T, f *fake, stream bool, o order) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", f.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	body := requestBody(f.spec.target(), stream, o, 0)
	_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	return c.(*net.TCPConn)
}

func running(t *testing.T, f *fake, n int) {
	t.Helper()
	require.Eventually(t, func() bool { r, _, _, _ := f.counts(); return r == n }, 10*time.Second, time.Millisecond, "%d running", n)
}

func total(t *testing.T, f *fake, n int) {
	t.Helper()
	require.Eventually(t, func() bool { _, r, _, _ := f.counts(); return r == n }, 10*time.Second, time.Millisecond, "%d in all", n)
}

func TestFake_AnswersWhole(t *testing.T) {
	f, v, _ := testFake(t)
	for i, stream := range []bool{false, true} {
		o := order{ID: fmt.Sprint(i), Parts: 3}
		res, err := http.ReadResponse(bufio.NewReader(ask(t, f, stream, o)), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		for _, part := range o.parts() {
			require.Contains(t, string(text), part)
		}
		require.Equal(t, stream, strings.HasSuffix(string(text), "data: [DONE]\n\n"))
		running(t, f, 0)
	}
	require.Zero(t, v.count())
}

func TestFake_SecondRequestAtCapacityOneIsABreach(t *testing.T) {
	f, v, out := testFake(t)
	f.setMode(hanging)
	ask(t, f, false, order{ID: "a", Parts: 1})
	running(t, f, 1)
	ask(t, f, false, order{ID: "b", Parts: 1})
	running(t, f, 2)
	require.Equal(t, 1, v.count())
	require.Contains(t, out.String(), "runs 2 requests, 1 are allowed")
}

func TestFake_RequestOfWhomTheClientIsGoneCountsNoMore(t *testing.T) {
	f, v, _ := testFake(t)
	f.setMode(hanging)
	first := ask(t, f, false, order{ID: "a", Parts: 1})
	running(t, f, 1)
	require.NoError(t, first.CloseWrite())
	running(t, f, 0)
	_, err := first.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the provider lets go after it has stopped")
	ask(t, f, false, order{ID: "b", Parts: 1})
	running(t, f, 1)
	require.Zero(t, v.count())
}

// A deaf provider works on: until the grace is over, the next start is a breach.
func TestFake_DeafRequestCountsUntilTheGraceIsOver(t *testing.T) {
	f, v, _ := testFake(t)
	f.setMode(deafHanging)
	first := ask(t, f, false, order{ID: "a", Parts: 1})
	running(t, f, 1)
	require.NoError(t, first.CloseWrite())
	left := func() (at time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for x := range f.running {
			if x.id == "a" {
				at = x.left
			}
		}
		return at
	}
	require.Eventually(t, func() bool { return !left().IsZero() }, 10*time.Second, time.Millisecond)

	f.mu.Lock()
	for x := range f.running {
		x.left = time.Now().Add(-f.spec.grace() / 2)
	}
	f.mu.Unlock()
	ask(t, f, false, order{ID: "b", Parts: 1})
	total(t, f, 2)
	require.Equal(t, 1, v.count(), "within the grace")

	f.mu.Lock()
	for x := range f.running {
		x.left = time.Now().Add(-f.spec.grace())
	}
	f.mu.Unlock()
	ask(t, f, false, order{ID: "c", Parts: 1})
	total(t, f, 3)
	require.Equal(t, 1, v.count(), "after it")
}

func TestFake_RequestOfADeadNodeCountsNoMore(t *testing.T) {
	f, v, _ := testFake(t)
	f.setMode(deafHanging)
	ask(t, f, false, order{ID: "a", Parts: 1})
	running(t, f, 1)
	f.nodeDied()
	ask(t, f, false, order{ID: "b", Parts: 1})
	running(t, f, 1)
	require.Zero(t, v.count())
}

func TestFake_ARepeatedRequestIsABreach(t *testing.T) {
	f, v, out := testFake(t)
	for range 2 {
		res, err := http.ReadResponse(bufio.NewReader(ask(t, f, false, order{ID: "same", Parts: 1})), nil)
		require.NoError(t, err)
		_, err = io.ReadAll(res.Body)
		require.NoError(t, err)
		running(t, f, 0)
	}
	require.Equal(t, 1, v.count())
	require.Contains(t, out.String(), "nothing that was sent may be repeated")
}

func TestFake_CrashEndsEverythingAndReviveServesAgain(t *testing.T) {
	f, v, _ := testFake(t)
	f.setMode(deafHanging)
	c := ask(t, f, false, order{ID: "a", Parts: 1})
	running(t, f, 1)
	f.crash()
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "a reset, no orderly end")
	_, err = net.Dial("tcp", f.address)
	require.Error(t, err)
	f.setMode(healthy)
	require.NoError(t, f.revive())
	_, err = http.ReadResponse(bufio.NewReader(ask(t, f, false, order{ID: "b", Parts: 1})), nil)
	require.NoError(t, err)
	require.Zero(t, v.count())
}

func TestLimit_LowerOneCountsOnceSettled(t *testing.T) {
	l := limit{current: 2, ceiling: 2}
	raised := l.set(4)
	require.Equal(t, 4, l.allowed(), "at once")
	lowered := l.set(1)
	require.Equal(t, 4, l.allowed())
	l.settle(raised)
	require.Equal(t, 4, l.allowed(), "a former refresh says nothing of this one")
	l.settle(lowered)
	require.Equal(t, 1, l.allowed())
}
