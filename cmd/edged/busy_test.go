package edged

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Requests that are refused while a stop waits come and go at any moment, the
// one in which the last running request ends included.
func TestBusy_RequestsMayComeWhileItWaits(t *testing.T) {
	const rounds = 200
	for range rounds {
		inside, finish := make(chan struct{}), make(chan struct{})
		var b busy
		h := b.around(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/running" {
				close(inside)
				<-finish
			}
		}))
		serve := func(path string) { h.ServeHTTP(nil, httptest.NewRequest(http.MethodGet, path, nil)) }
		var callers sync.WaitGroup
		callers.Go(func() { serve("/running") })
		<-inside
		for range 4 {
			callers.Go(func() { serve("/refused") })
		}
		callers.Go(func() { close(finish) })
		require.True(t, b.wait(t.Context()))
		callers.Wait()
	}
}

func TestBusy_WaitEndsWithItsContext(t *testing.T) {
	finish, inside := make(chan struct{}), make(chan struct{})
	var b busy
	h := b.around(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(inside); <-finish }))
	var caller sync.WaitGroup
	caller.Go(func() { h.ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/", nil)) })
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, b.wait(ctx))
	close(finish)
	caller.Wait()
	require.True(t, b.wait(t.Context()))
}
