package inference

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
	"github.com/iop-dev/iop/services/rpcerr"
)

// Run answers one conversation. Its error carries an inferencev1.Failure; once
// `started` is sent, the same Failure has been sent as an event before.
func (s *Service) Run(ctx context.Context, req *inferencev1.RunRequest, stream *connect.ServerStream[inferencev1.RunResponse]) error {
	r := &run{send: stream.Send, simulated: s.Simulated, started: inferencev1.Started{RequestId: requestID(ctx), Model: req.GetModel()}}
	stream.ResponseHeader().Set("X-Request-Id", r.started.RequestId)
	err := s.carry(ctx, req, r)
	if r.completed || err == nil {
		return nil
	}
	detail, known, failed := rpcerr.Run(err)
	if !known {
		s.Log.Error("run failed by an unforeseen error", "request_id", r.started.RequestId, "error", err)
	}
	fateOf(ctx).refused = codeOf(detail.GetReason())
	r.fail(detail)
	return failed
}

// carry admits the run and sees it to its end.
func (s *Service) carry(ctx context.Context, req *inferencev1.RunRequest, r *run) error {
	if err := bodyEnd(ctx); err != nil {
		return err
	}
	if s.draining.Load() {
		return rpcerr.ErrDraining
	}
	key := s.key(ctx)
	target, known := s.Target(req.GetModel())
	switch {
	case key == nil && !s.Keys.Open():
		return rpcerr.ErrInvalidAPIKey
	case !known:
		return rpcerr.ErrModelNotFound
	case key != nil && !key.Allows(req.GetModel()):
		return rpcerr.ErrModelNotAllowed
	}
	settings := s.Settings()
	if err := check(req, target, settings); err != nil {
		return err
	}
	request, err := requestOf(req, r.started.RequestId, target, settings, s.Calibration)
	if err != nil {
		return err
	}
	request.Client = key.Name()
	if call, ok := connect.CallInfoForHandlerContext(ctx); ok {
		request.TraceParent = call.RequestHeader().Get("Traceparent")
	}
	if key != nil {
		release, ok := key.Admit()
		if !ok {
			return rpcerr.ErrKeyLimit
		}
		defer release()
	}
	fateOf(ctx).dispatched = true
	err = s.Dispatcher.Do(ctx, request, r)
	switch {
	case err == nil && r.completed:
		counted, _ := r.Tokens()
		s.Calibration.Observe(r.target, request.Input.Estimate, max(counted, 0))
	case r.reported != nil:
		return &rpcerr.ReportedError{Failure: r.reported}
	case err != nil && s.draining.Load() && !r.begun:
		return drained(err)
	}
	return err
}

// requestOf is the run in dispatch's terms.
func requestOf(req *inferencev1.RunRequest, id string, target Target, s Settings, c *estimate.Calibration) (*dispatch.Request, error) {
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	likeness, err := chatLikeness(req)
	if err != nil {
		return nil, err
	}
	return &dispatch.Request{
		ID: id, Group: target.Group, Input: c.Input(likeness, target.Targets, s.LongThreshold), Surface: admission.SurfaceChat,
		Path: inferencev1connect.InferenceServiceRunProcedure, Header: []dispatch.Header{{Name: "X-Request-Id", Value: id}}, Body: body,
		ContextWindow: target.ContextWindow, IdleTimeout: s.IdleTimeout, TotalTimeout: s.TotalTimeout,
	}, nil
}

// check holds the rules that the messages cannot state: JSON is JSON, and the
// live limits.
func check(req *inferencev1.RunRequest, target Target, s Settings) error {
	if size := proto.Size(req); s.BodyLimit > 0 && int64(size) > s.BodyLimit {
		return &rpcerr.TooLargeError{Limit: s.BodyLimit}
	}
	if window := target.ContextWindow; window > 0 && int(req.GetNumCtx()) > window {
		return &rpcerr.InvalidError{Field: "num_ctx", Why: fmt.Sprintf("is more than the model's context window of %d tokens", window)}
	}
	type text struct{ field, json string }
	var texts []text
	for i, t := range req.GetTools() {
		if t.GetParametersJson() != "" {
			texts = append(texts, text{fmt.Sprintf("tools[%d].parameters_json", i), t.GetParametersJson()})
		}
	}
	for i, m := range req.GetMessages() {
		for j, c := range m.GetToolCalls() {
			if c.GetArgumentsJson() != "" {
				texts = append(texts, text{fmt.Sprintf("messages[%d].tool_calls[%d].arguments_json", i, j), c.GetArgumentsJson()})
			}
		}
	}
	if schema := req.GetResponseFormat().GetJsonSchema(); schema != nil {
		texts = append(texts, text{"response_format.json_schema.schema_json", schema.GetSchemaJson()})
	}
	for _, t := range texts {
		if !strings.HasPrefix(strings.TrimLeft(t.json, " \t\r\n"), "{") || !json.Valid([]byte(t.json)) {
			return &rpcerr.InvalidError{Field: t.field, Why: "is not a JSON object"}
		}
	}
	return nil
}

// requestID is the client's x-request-id if it is a sane one, else a new one.
func requestID(ctx context.Context) string {
	if call, ok := connect.CallInfoForHandlerContext(ctx); ok {
		if id := call.RequestHeader().Get("X-Request-Id"); saneID(id) {
			return id
		}
	}
	var b [12]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return "req_" + hex.EncodeToString(b[:])
}

func saneID(id string) bool {
	const sane = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return id != "" && len(id) <= 128 && strings.Trim(id, sane) == ""
}
