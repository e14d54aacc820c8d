package introspect

import (
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
)

// Reflection is the handlers of gRPC's reflection, by their paths. names is as for
// [Health].
func Reflection(names func() []string) map[string]http.Handler {
	reflector := grpcreflect.NewReflector(grpcreflect.NamerFunc(names))
	handlers := map[string]http.Handler{}
	for _, build := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){
		grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha,
	} {
		path, h := build(reflector, connect.WithReadMaxBytes(maxMessage))
		handlers[path] = h
	}
	return handlers
}
