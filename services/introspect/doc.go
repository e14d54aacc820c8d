// Package introspect serves what gRPC's own tools expect of every server: the
// health protocol (grpc.health.v1) and reflection (grpc.reflection.v1, and v1alpha
// for tools that know no other).
//
// Health tells load balancers and probes whether calls are taken, and nothing else:
// it is for everybody, as /readyz is. Reflection tells the shape of the messages,
// which is public; who may ask is the caller's to decide, by wrapping the handlers.
//
// It must not know which services there are: whoever mounts them names them.
package introspect
