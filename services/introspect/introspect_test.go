package introspect_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	"github.com/iop-dev/iop/services/introspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func names() []string { return []string{controlv1connect.ControlServiceName} }

// check asks for a service's health as curl would.
func check(h http.Handler, path, service string) string {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path+"Check", strings.NewReader(`{"service": "`+service+`"}`))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	return w.Body.String()
}

func TestHealthTellsReadinessOfTheServerAndOfItsServices(t *testing.T) {
	var ready atomic.Bool
	path, h := introspect.Health(ready.Load, names)
	require.Equal(t, "/grpc.health.v1.Health/", path)
	for _, service := range []string{"", controlv1connect.ControlServiceName} {
		ready.Store(true)
		require.JSONEq(t, `{"status": "SERVING_STATUS_SERVING"}`, check(h, path, service))
		ready.Store(false)
		require.JSONEq(t, `{"status": "SERVING_STATUS_NOT_SERVING"}`, check(h, path, service))
	}
	require.Contains(t, check(h, path, "iop.control.v1.Other"), `"code":"not_found"`)
	require.Contains(t, check(h, path, strings.Repeat("x", 9<<10)), `"code":"resource_exhausted"`)
}

// readLimit notes until when a request may come.
type readLimit struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (r *readLimit) SetReadDeadline(at time.Time) error {
	r.at = at
	return nil
}

// Nobody without a token holds a connection with a question that does not come.
func TestAQuestionAboutHealthIsNotWaitedForForEver(t *testing.T) {
	path, h := introspect.Health(func() bool { return true }, names)
	w := &readLimit{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path+"Check", strings.NewReader("{}")))
	require.WithinDuration(t, time.Now().Add(10*time.Second), w.at, 5*time.Second)
}

func TestReflectionTellsServicesAndTheirMessages(t *testing.T) {
	mux := http.NewServeMux()
	for path, h := range introspect.Reflection(names) {
		mux.Handle(path, h)
	}
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	stream := grpcreflect.NewClient(server.Client(), server.URL, connect.WithGRPC()).NewStream(t.Context())
	services, err := stream.ListServices()
	require.NoError(t, err)
	require.Equal(t, []protoreflect.FullName{controlv1connect.ControlServiceName}, services)
	files, err := stream.FileContainingSymbol(controlv1connect.ControlServiceName)
	require.NoError(t, err)
	var found []string
	for _, f := range files {
		found = append(found, f.GetName())
	}
	require.Contains(t, found, "iop/control/v1/control.proto")
	require.Contains(t, found, "buf/validate/validate.proto", "what it imports comes along")
	_, err = stream.Close()
	require.NoError(t, err)
}
