package introspect

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
)

// maxMessage is the largest message that is read, in bytes: a service's name, or a
// question about a file.
const maxMessage = 8 << 10

// patience is how long a question about health may take to come: it is asked
// without a token, and nobody is to hold connections with it.
const patience = 10 * time.Second

// Health is the handler of gRPC's health protocol, and its path. ready reports
// whether calls are taken now, names the full names of the services mounted beside
// it; both are called for each check, at the same time by many. Watch is
// unimplemented: an unkeyed client could hold streams open with it.
func Health(ready func() bool, names func() []string) (path string, h http.Handler) {
	path, checks := grpchealth.NewHandler(checker{ready, names}, connect.WithReadMaxBytes(maxMessage))
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Unsupported only in writers that are no connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience))
		checks.ServeHTTP(w, r)
	})
}

type checker struct {
	ready func() bool
	names func() []string
}

// Check answers for the server as a whole (no name) and for each of its services.
func (c checker) Check(_ context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && !slices.Contains(c.names(), req.Service) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no service %q on this listener", req.Service))
	}
	status := grpchealth.StatusNotServing
	if c.ready() {
		status = grpchealth.StatusServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}
