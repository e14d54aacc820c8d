package openai

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
)

// overStoppable is over, with a cut that ends every request's context as a stop
// does at the end of its grace.
func overStoppable(t *testing.T, d Dispatcher, test func(r *rig, second <-chan struct{}, cut func())) {
	over(t, d, settings(), func(r *rig) {
		second := make(chan struct{}, 8)
		life, cut := context.WithCancelCause(t.Context())
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			req.Body = &pieces{ReadCloser: req.Body, second: second}
			r.handler.ServeHTTP(w, req)
		}))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Config.BaseContext = func(net.Listener) context.Context { return life }
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		server.Start()
		t.Cleanup(server.Close)
		r.url = server.URL
		test(r, second, func() {
			r.handler.Drain(time.Second)
			cut(dispatch.ErrStopped)
		})
	})
}

// untilStopped plays frames, then waits for the stop and ends as dispatch does.
func untilStopped(inside chan<- struct{}, err error, frames ...dispatch.Frame) doFunc {
	return func(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
		if e := answer(frames...)(ctx, r, s); e != nil {
			return e
		}
		inside <- struct{}{}
		<-ctx.Done()
		return err
	}
}

func lostToAStop(started bool) error {
	return &dispatch.FailedError{Code: dispatch.ProviderDisconnected, Started: started, HandedOff: true, Stopped: true, Grant: grant}
}

// Whoever is still running at the end of the grace is told, in the terms of the
// contract, and told not to repeat what may have been done.
func TestAStopTellsThoseItEnds(t *testing.T) {
	inside := make(chan struct{}, 1)
	ask := func(r *rig, cut func()) reply {
		done := make(chan reply, 1)
		go func() {
			res, err := r.client.Do(r.request(http.MethodPost, "/v1/chat/completions", hello))
			if err != nil {
				done <- reply{err: err}
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			done <- reply{res, string(body), err}
		}()
		<-inside
		cut()
		return <-done
	}
	t.Run("before the answer", func(t *testing.T) {
		overStoppable(t, untilStopped(inside, lostToAStop(false)), func(r *rig, _ <-chan struct{}, cut func()) {
			got := ask(r, cut)
			r.requireError(got, 502, "provider_disconnected", "server_error")
			require.Contains(r, got.body, "shut down")
			require.Equal(r, "false", got.Header.Get("X-Should-Retry"))
		})
	})
	t.Run("never handed off", func(t *testing.T) {
		overStoppable(t, untilStopped(inside, dispatch.ErrStopped), func(r *rig, _ <-chan struct{}, cut func()) {
			got := ask(r, cut)
			r.requireError(got, 503, "draining", "server_error")
			require.NotEmpty(r, got.Header.Get("Retry-After"))
			require.Empty(r, got.Header.Get("X-Should-Retry"))
		})
	})
	t.Run("in a stream", func(t *testing.T) {
		frames := events("data: {\"model\":\"served\"}\n\n")
		overStoppable(t, untilStopped(inside, lostToAStop(true), frames...), func(r *rig, _ <-chan struct{}, cut func()) {
			got := ask(r, cut)
			require.NoError(r, got.err)
			requireEnvelope(r, lastEvent(r, got.body), "provider_disconnected", "server_error")
			require.NotContains(r, got.body, "[DONE]")
		})
	})
	t.Run("in another answer", func(t *testing.T) {
		frame := dispatch.Frame{Head: head(200, "application/json"), Body: []byte(`{"half":`)}
		overStoppable(t, untilStopped(inside, lostToAStop(true), frame), func(r *rig, _ <-chan struct{}, cut func()) {
			require.Error(r, ask(r, cut).err, "half an answer never passes for a whole one")
		})
	})
}

// A body that is still on its way at the end of the grace is not waited for.
func TestAStopEndsTheReadOfABody(t *testing.T) {
	overStoppable(t, refuse(nil), func(r *rig, second <-chan struct{}, cut func()) {
		body, sent := io.Pipe()
		defer sent.Close()
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+"/v1/chat/completions", body)
		require.NoError(r, err)
		req.Header.Set("Content-Type", "application/json")
		req.ContentLength = 1000
		done := make(chan reply, 1)
		go func() {
			res, err := r.client.Do(req)
			if err != nil {
				done <- reply{err: err}
				return
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			done <- reply{res, string(text), err}
		}()
		_, err = io.WriteString(sent, "{")
		require.NoError(r, err)
		<-second
		cut()
		r.requireError(<-done, 503, "draining", "server_error")
	})
}

// pieces tells of the second read of a body.
type pieces struct {
	io.ReadCloser
	reads  int
	second chan<- struct{}
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.reads++; p.reads == 2 {
		p.second <- struct{}{}
	}
	return p.ReadCloser.Read(b)
}
