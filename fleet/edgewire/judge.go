package edgewire

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// maxParts bounds the messages within one answer: an empty one takes two bytes
	// on the wire and a hundred times that in memory.
	maxParts = 250_000
	// maxReason bounds what is kept of an error, in bytes.
	maxReason = 300
)

// What an answer that is no nonsense on the wire can still be.
var (
	errParts = fmt.Errorf("the Edge's answer has more than %d parts", maxParts)
	errTime  = errors.New("the Edge's answer has a time that is none, before the year 1 or after 9999")
)

// careful is Connect's binary codec, which judges an answer before it takes memory
// for it.
type careful struct{}

var _ connect.Codec = careful{}

// Name implements connect.Codec.
func (careful) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (careful) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }

// Unmarshal implements connect.Codec.
func (careful) Unmarshal(data []byte, m any) error {
	parts := 0
	if err := judge(m.(proto.Message).ProtoReflect().Descriptor(), data, &parts); err != nil {
		return err
	}
	return proto.Unmarshal(data, m.(proto.Message))
}

// timeName is the message whose values are judged.
var timeName = (*timestamppb.Timestamp)(nil).ProtoReflect().Descriptor().FullName()

// judge counts the parts of a message, and looks at its times: one that is none
// could not be passed on. What is malformed is left to proto.Unmarshal.
func judge(of protoreflect.MessageDescriptor, data []byte, parts *int) error {
	if *parts++; *parts > maxParts {
		return errParts
	}
	if of.FullName() == timeName {
		at := &timestamppb.Timestamp{}
		if proto.Unmarshal(data, at) == nil && !at.IsValid() {
			return errTime
		}
		return nil
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return nil
		}
		field := of.Fields().ByNumber(number)
		if kind == protowire.BytesType && field != nil && field.Message() != nil {
			value, _ := protowire.ConsumeBytes(data)
			if err := judge(field.Message(), value, parts); err != nil {
				return err
			}
		}
		data = data[n:]
	}
	return nil
}

// reason is an error of an Edge, or of whatever stands in its place, as it may be
// logged and shown: one short line, without the token, which an answer may repeat.
func (e *Edge) reason(err error) error {
	text := err.Error()
	if e.token != "" {
		text = strings.ReplaceAll(text, e.token, "***")
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return errors.New(text)
}
