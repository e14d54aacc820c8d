package provider

import runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"

// Frame is one piece of an answer. The first of an answer has Head (a first
// frame that is a Failure has none); the last has End or Failure.
type Frame struct {
	Head *runtimev1.ResponseHead
	// Body is valid until Writer.Frame returns.
	Body    []byte
	End     bool
	Failure *runtimev1.Failure
}

// Writer takes the frames of one answer, in order and never two at a time,
// though not always from the same goroutine. Frame blocks while the reader is
// slow: that is the back-pressure on the provider. It must return when the
// context given to Run ends. An error means the reader is gone for good: no
// further frame is written, and the request is ended as if cancelled.
type Writer interface {
	Frame(f *Frame) error
}
