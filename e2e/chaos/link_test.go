//go:build linux

package main

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wire is a link with both its ends in the test's hands.
func wire(t *testing.T) (k *link, near, far net.Conn) {
	t.Helper()
	edge, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = edge.Close() })
	k, err = newLink("127.0.0.1", edge.Addr().String(), nil)
	require.NoError(t, err)
	t.Cleanup(k.close)
	near, err = net.Dial("tcp", k.address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = near.Close() })
	far, err = edge.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	return k, near, far
}

func TestLink_CarriesBytesAndEnds(t *testing.T) {
	_, near, far := wire(t)
	_, err := near.Write([]byte("ping"))
	require.NoError(t, err)
	require.NoError(t, near.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Equal(t, "ping", string(got))
	_, err = far.Write([]byte("pong"))
	require.NoError(t, err)
	require.NoError(t, far.Close())
	got, err = io.ReadAll(near)
	require.NoError(t, err)
	require.Equal(t, "pong", string(got))
}

func TestLink_BlackHoleHoldsBytesBackUntilItIsFilled(t *testing.T) {
	k, near, far := wire(t)
	require.NoError(t, k.hole())
	_, err := near.Write([]byte("late"))
	require.NoError(t, err)
	require.NoError(t, far.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = far.Read(make([]byte, 8))
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, far.SetReadDeadline(time.Time{}))
	require.NoError(t, k.fill())
	buf := make([]byte, 4)
	_, err = io.ReadFull(far, buf)
	require.NoError(t, err)
	require.Equal(t, "late", string(buf))
}

func TestLink_ResetIsNoOrderlyEnd(t *testing.T) {
	k, near, far := wire(t)
	k.resetAll()
	for _, c := range []net.Conn{near, far} {
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	}
}

func TestLink_ImpairedCarriesAll(t *testing.T) {
	k, near, far := wire(t)
	k.impair(2*time.Millisecond, 4<<20)
	sent := make([]byte, 200<<10)
	go func() {
		_, _ = near.Write(sent)
		_ = near.(*net.TCPConn).CloseWrite()
	}()
	began := time.Now()
	got, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Len(t, got, len(sent))
	require.GreaterOrEqual(t, time.Since(began), 45*time.Millisecond, "200 KiB at 4 MiB/s")
}
