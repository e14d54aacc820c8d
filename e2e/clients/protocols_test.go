package clients

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

var protocols = map[string][]connect.ClientOption{
	"connect":      nil,
	"connect json": {connect.WithProtoJSON()},
	"grpc":         {connect.WithGRPC()},
	"grpc json":    {connect.WithGRPC(), connect.WithProtoJSON()},
	"grpc-web":     {connect.WithGRPCWeb()},
}

// tour lists models, runs one request to its end, is refused another, and watches
// for two updates.
func tour(t *testing.T, inference inferencev1connect.InferenceServiceClient, control controlv1connect.ControlServiceClient) {
	t.Helper()
	list, err := inference.ListModels(within(t), &inferencev1.ListModelsRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetModels(), 1)
	require.True(t, list.GetModels()[0].GetAvailable())

	stream, err := inference.Run(within(t), ask("simulator", "Hello"))
	require.NoError(t, err)
	var text string
	var completed bool
	for stream.Receive() {
		text += stream.Msg().GetDelta().GetText()
		completed = completed || stream.Msg().GetCompleted() != nil
	}
	require.NoError(t, stream.Err())
	require.NoError(t, stream.Close())
	require.True(t, completed)
	require.NotEmpty(t, text)

	stream, err = inference.Run(within(t), ask("no-such-model", "Hello"))
	if err == nil {
		require.False(t, stream.Receive())
		err = stream.Err()
		_ = stream.Close()
	}
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
	var e *connect.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Details(), 1)
	detail, err := e.Details()[0].Value()
	require.NoError(t, err)
	require.Equal(t, inferencev1.FailureReason_FAILURE_REASON_MODEL_NOT_FOUND, detail.(*inferencev1.Failure).GetReason())

	ctx, stop := context.WithCancel(within(t))
	defer stop()
	watch, err := control.WatchEdgeNodeSnapshot(ctx, &controlv1.WatchEdgeNodeSnapshotRequest{})
	require.NoError(t, err)
	require.True(t, watch.Receive(), "%v", watch.Err())
	require.Equal(t, "clients", watch.Msg().GetFull().GetEdgeId())
	first := watch.Msg().GetSequence()
	require.True(t, watch.Receive(), "%v", watch.Err())
	require.Greater(t, watch.Msg().GetSequence(), first)
	stop()
	for watch.Receive() { // until the end has come through
		continue
	}
	require.Equal(t, connect.CodeCanceled, connect.CodeOf(watch.Err()))
	_ = watch.Close()
}

// Case K01: h2c, and TLS.
func TestCase_K01_EveryProtocolOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		s := start(t, tls)
		for name, o := range protocols {
			t.Run(name+map[bool]string{false: " over h2c", true: " over TLS"}[tls], func(t *testing.T) {
				t.Parallel()
				tour(t, s.client(t, apiKey, o...).Inference, s.client(t, readToken, o...).Control)
			})
		}
	}
}

// A proxy that speaks HTTP/1.1 to the Edge carries all but two-way streams and gRPC.
func TestCase_K02_AProxyThatLowersToHTTP1(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	target, err := url.Parse(s.url)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: http1(t).Transport,
	}
	front := serveH2C(t, proxy)
	for name, o := range map[string][]connect.ClientOption{
		"connect": nil, "connect json": {connect.WithProtoJSON()}, "grpc-web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behind := &site{url: front}
			tour(t, behind.client(t, apiKey, o...).Inference, behind.client(t, readToken, o...).Control)
		})
	}
}

// Clients that speak HTTP/1.1 themselves.
func TestCase_K01_OneWayStreamsOverHTTP1(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	for name, o := range map[string][]connect.ClientOption{
		"connect": nil, "connect json": {connect.WithProtoJSON()}, "grpc-web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http1(t)
			tour(t, inferencev1connect.NewInferenceServiceClient(sends{h, apiKey}, s.url, o...),
				controlv1connect.NewControlServiceClient(sends{h, readToken}, s.url, o...))
		})
	}
}

// sends adds a credential to what a client sends.
type sends struct {
	to     *http.Client
	secret string
}

func (s sends) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+s.secret)
	return s.to.Do(r)
}

// Reflection is for any credential, health for everybody.
func TestReflectionNeedsACredential(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	services := func(secret string) ([]protoreflect.FullName, error) {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		stream := grpcreflect.NewClient(sends{&http.Client{Transport: transport}, secret}, s.url, connect.WithGRPC()).NewStream(within(t))
		names, err := stream.ListServices()
		_, closed := stream.Close()
		return names, errors.Join(err, closed)
	}
	for _, secret := range []string{apiKey, readToken, adminToken} {
		names, err := services(secret)
		require.NoError(t, err)
		for _, want := range []protoreflect.FullName{"iop.inference.v1.InferenceService", "iop.control.v1.ControlService", "iop.admin.v1.AdminService", "grpc.health.v1.Health"} {
			require.Contains(t, names, want)
		}
	}
	for _, secret := range []string{"", "wrong", nodeToken} {
		_, err := services(secret)
		require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), "%q: %v", secret, err)
	}
	res, text := postJSON(t, s, "/grpc.health.v1.Health/Check", "", `{}`)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.JSONEq(t, `{"status": "SERVING_STATUS_SERVING"}`, text)
}
