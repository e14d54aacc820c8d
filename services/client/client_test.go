package client_test

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
	"github.com/iop-dev/iop/services/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "iop_key_example"

// edge stands for an Edge with one model.
type edge struct {
	inferencev1connect.UnimplementedInferenceServiceHandler
}

func (edge) ListModels(context.Context, *inferencev1.ListModelsRequest) (*inferencev1.ListModelsResponse, error) {
	return &inferencev1.ListModelsResponse{Models: []*inferencev1.Model{{Id: "qwen3", Available: true}}}, nil
}

func (edge) Run(_ context.Context, _ *inferencev1.RunRequest, stream *connect.ServerStream[inferencev1.RunResponse]) error {
	for _, text := range []string{"Hello", ", you."} {
		if err := stream.Send(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Delta{Delta: &inferencev1.Delta{Text: text}}}); err != nil {
			return err
		}
	}
	return nil
}

// serve serves an edge over HTTP/2 alone, and asks for the key.
func serve(tls bool) *httptest.Server {
	_, h := inferencev1connect.NewInferenceServiceHandler(edge{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Authorization") != "Bearer "+key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	if tls {
		s.EnableHTTP2 = true
		s.StartTLS()
		return s
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s
}

func Example() {
	server := serve(false)
	defer server.Close()

	c, err := client.New(client.Options{URL: server.URL, Secret: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	ctx := context.Background()
	list, err := c.Inference.ListModels(ctx, &inferencev1.ListModelsRequest{})
	if err != nil {
		panic(err)
	}
	stream, err := c.Inference.Run(ctx, &inferencev1.RunRequest{
		Model: list.GetModels()[0].GetId(),
		Messages: []*inferencev1.Message{{
			Role:  inferencev1.Role_ROLE_USER,
			Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: "Hello"}}},
		}},
	})
	if err != nil {
		panic(err)
	}
	for stream.Receive() {
		fmt.Print(stream.Msg().GetDelta().GetText())
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		panic(err)
	}
	// Output: Hello, you.
}

func TestEveryProtocolAndTrust(t *testing.T) {
	plain, secure := serve(false), serve(true)
	defer plain.Close()
	defer secure.Close()
	sum := sha256.Sum256(secure.Certificate().Raw)
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	for name, protocol := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}, "json": {connect.WithProtoJSON()},
	} {
		for how, o := range map[string]client.Options{
			"h2c": {URL: plain.URL + "/"}, "pin": {URL: secure.URL, Pin: hex.EncodeToString(sum[:])}, "authority": {URL: secure.URL, RootCAs: pool},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				o.Secret, o.Connect = key, protocol
				c, err := client.New(o)
				require.NoError(t, err)
				defer c.Close()
				list, err := c.Inference.ListModels(t.Context(), &inferencev1.ListModelsRequest{})
				require.NoError(t, err)
				require.Equal(t, "qwen3", list.GetModels()[0].GetId())
			})
		}
	}
}

func TestWhatIsNotTrustedIsNotCalled(t *testing.T) {
	server := serve(true)
	defer server.Close()
	server.Config.ErrorLog = nil
	other := sha256.Sum256([]byte("another certificate"))
	for want, o := range map[string]client.Options{
		"not the pinned one": {URL: server.URL, Secret: key, Pin: hex.EncodeToString(other[:])},
		"unknown authority":  {URL: server.URL, Secret: key, RootCAs: x509.NewCertPool()},
	} {
		c, err := client.New(o)
		require.NoError(t, err)
		_, err = c.Inference.ListModels(t.Context(), &inferencev1.ListModelsRequest{})
		require.ErrorContains(t, err, want)
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		c.Close()
	}
}

// A secret is for the configured address alone.
func TestARedirectIsNotFollowed(t *testing.T) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	start := func(h http.HandlerFunc) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = protocols
		s.Start()
		t.Cleanup(s.Close)
		return s
	}
	other := start(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server is called, with %q", r.Header.Get("Authorization"))
	})
	server := start(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	c, err := client.New(client.Options{URL: server.URL, Secret: key})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Inference.ListModels(t.Context(), &inferencev1.ListModelsRequest{})
	require.ErrorContains(t, err, "307")
}

func TestUnusableOptionsAreRefused(t *testing.T) {
	for _, o := range []client.Options{
		{URL: "127.0.0.1:8484"}, {URL: "ftp://edge"}, {URL: "http://"}, {URL: "https://edge", Pin: "abc"}, {URL: "https://edge", Pin: "zz"},
	} {
		_, err := client.New(o)
		require.ErrorContains(t, err, "expected", "%+v", o)
	}
}

// What answers may make the caller hold so much, compressed or not, in an error too; a caller may set its own limit.
func TestAnAnswerWithoutEndIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		status, limit int
		kind          string
		more          []connect.ClientOption
	}{
		"message": {http.StatusOK, 64 << 20, "application/proto", nil},
		"error":   {http.StatusInternalServerError, 1 << 20, "application/json", []connect.ClientOption{connect.WithReadMaxBytes(1 << 20)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(c.status)
				z := gzip.NewWriter(w)
				_, _ = z.Write(make([]byte, c.limit+1)) // the client says what it got
				_ = z.Close()
			}))
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
			defer s.Close()
			api, err := client.New(client.Options{URL: s.URL, Secret: key, Connect: c.more})
			require.NoError(t, err)
			defer api.Close()
			_, err = api.Control.GetEdgeNodeSnapshot(t.Context(), &controlv1.GetEdgeNodeSnapshotRequest{})
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, fmt.Sprint(c.limit))
		})
	}
}
