package framecodec

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Codec is a connect.Codec named "proto". It also has the MarshalAppend method
// that Connect looks for, so that messages are written straight into Connect's
// pooled buffers.
//
// Unmarshal copies what it keeps: Connect re-uses its read buffer as soon as
// Unmarshal has returned. Connect does not call it at all for an empty message,
// so re-used frames are reset before each receive.
type Codec struct{}

// Name is the content sub-type: this codec stands in for Connect's own.
func (Codec) Name() string { return "proto" }

// Marshal encodes message.
func (c Codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends the encoding of message to dst.
func (Codec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	switch m := message.(type) {
	case *Request:
		return m.append(dst), nil
	case *Answer:
		return m.append(dst), nil
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	}
	return nil, fmt.Errorf("framecodec: cannot encode %T: neither a frame nor a protobuf message", message)
}

// Unmarshal decodes data into message.
func (Codec) Unmarshal(data []byte, message any) error {
	switch m := message.(type) {
	case *Request:
		return m.decode(data)
	case *Answer:
		return m.decode(data)
	case proto.Message:
		return proto.Unmarshal(data, m)
	}
	return fmt.Errorf("framecodec: cannot decode into %T: neither a frame nor a protobuf message", message)
}
