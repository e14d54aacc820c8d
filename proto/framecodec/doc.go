// Package framecodec is what the two ends of the Edge–Node wire share: the
// constants both must agree on, and a fast codec for the frames of the work
// streams.
//
// On the wire it is plain protobuf of proto/iop/runtime/v1 (any protobuf
// implementation can be the other end); in memory the frames are [Request]
// (WorkResponse: Edge to node) and [Answer] (WorkRequest: node to Edge), which
// a stream re-uses from frame to frame, so that a chunk in mid-stream costs no
// allocation of ours. Every other message goes through
// google.golang.org/protobuf unchanged.
//
// The package must not know sessions, leases, HTTP or who calls it.
package framecodec
