package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

// serveH2C serves over HTTP/1.1 and h2c until the test's end.
func serveH2C(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	server := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}

// post sends a body as curl does, over HTTP/1.1.
func post(t *testing.T, s *site, path, secret, contentType string, body []byte, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, s.url+path, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", contentType)
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http1(t).Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(text)
}

func postJSON(t *testing.T, s *site, path, secret, body string, header ...string) (*http.Response, string) {
	t.Helper()
	return post(t, s, path, secret, "application/json", []byte(body), header...)
}

// codeOf is the code of a Connect error as JSON.
func codeOf(t *testing.T, text string) string {
	t.Helper()
	var e struct{ Code string }
	require.NoError(t, json.Unmarshal([]byte(text), &e), text)
	return e.Code
}

const (
	explain     = "/iop.control.v1.ControlService/ExplainRequest"
	snapshot    = "/iop.control.v1.ControlService/GetEdgeNodeSnapshot"
	setOverride = "/iop.admin.v1.AdminService/SetOverride"
	listModels  = "/iop.inference.v1.InferenceService/ListModels"
	runPath     = "/iop.inference.v1.InferenceService/Run"
)

// Two-way streams over HTTP/1.1: a sentence says why not.
func TestCase_K01_TwoWayStreamsOverHTTP1AreExplained(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	for _, path := range []string{
		"/iop.runtime.v1.NodeLinkService/Session", "/iop.runtime.v1.NodeLinkService/Work",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	} {
		res, text := post(t, s, path, readToken, "application/connect+proto", nil)
		require.Equal(t, http.StatusHTTPVersionNotSupported, res.StatusCode, path)
		require.Contains(t, text, "h2c")
		require.Contains(t, text, "proxy")
	}
}

// 64-bit fields are taken as numbers and as strings, and written as strings.
func TestCase_K03_NumbersOf64BitsAsNumberAndAsString(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	for _, body := range []string{`{"enqueueSeq": 7}`, `{"enqueueSeq": "7"}`, `{"enqueue_seq": 7}`, `{"enqueueSeq": 7e0}`} {
		res, text := postJSON(t, s, explain, readToken, body)
		require.Equal(t, http.StatusNotFound, res.StatusCode, "%s: %s", body, text)
		require.Equal(t, "not_found", codeOf(t, text), "%s was read, and there is no such request", body)
	}
	for _, body := range []string{`{"enqueueSeq": 7.5}`, `{"enqueueSeq": "seven"}`, `{"enqueueSeq": -1}`} {
		_, text := postJSON(t, s, explain, readToken, body)
		require.Equal(t, "invalid_argument", codeOf(t, text), body)
	}
	_, text := postJSON(t, s, snapshot, readToken, `{}`)
	require.Regexp(t, `"configRevision":\s*"1"`, text)
}

// What a newer peer sends is passed over: fields and enum names that are unknown,
// in JSON and in binary. A number of an enum that decides something is refused, and
// told by name.
func TestCase_K06_UnknownFieldsAndEnumsAreTolerated(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	res, text := postJSON(t, s, listModels, apiKey, `{"notYet": {"deep": [1, 2]}, "also_not": null}`)
	require.Equal(t, http.StatusOK, res.StatusCode, text)

	later := protowire.AppendTag(nil, 1000, protowire.BytesType)
	later = protowire.AppendBytes(later, []byte("from a newer client"))
	res, text = post(t, s, listModels, apiKey, "application/proto", later)
	require.Equal(t, http.StatusOK, res.StatusCode)
	var list inferencev1.ListModelsResponse
	require.NoError(t, proto.Unmarshal([]byte(text), &list))
	require.Len(t, list.GetModels(), 1)

	// An enum name that this version does not know is unspecified; the rest holds.
	run := `{"model": "simulator", "reasoningEffort": "REASONING_EFFORT_EXTREME", "messages": [{"role": "ROLE_USER", "parts": [{"text": "Hi"}], "mood": "GOOD"}]}`
	res, text = post(t, s, runPath, apiKey, "application/connect+json", enveloped(run))
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, text, `"completed"`)
	require.NotContains(t, text, `"error"`)

	// A role that is no role cannot be run, and the answer names the field.
	stream, err := s.client(t, apiKey).Inference.Run(within(t), &inferencev1.RunRequest{Model: "simulator", Messages: []*inferencev1.Message{{
		Role: 99, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: "Hi"}}},
	}}})
	if err == nil {
		require.False(t, stream.Receive())
		err = stream.Err()
		_ = stream.Close()
	}
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.ErrorContains(t, err, "role")

	// An order that is not known is not carried out.
	_, err = s.client(t, adminToken).Admin.SetOverride(within(t), &adminv1.SetOverrideRequest{Node: "n1", Action: 99})
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	_, text = postJSON(t, s, setOverride, adminToken, `{"node": "n1", "action": "OVERRIDE_ACTION_EXPLODE"}`)
	require.Equal(t, "invalid_argument", codeOf(t, text))
}

// enveloped is one message of a stream, as Connect's JSON has it.
func enveloped(message string) []byte {
	n := len(message)
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// A message above a limit is told with its size and the limit, and the connection
// goes on.
func TestCase_K08_OversizeMessagesAreToldWithSizeAndLimit(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	for name, o := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.client(t, apiKey, o...)
			stream, err := c.Inference.Run(within(t), ask("simulator", strings.Repeat("x", 2<<20)))
			if err == nil {
				require.False(t, stream.Receive())
				err = stream.Err()
				_ = stream.Close()
			}
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, "1048576")
			_, err = c.Inference.ListModels(within(t), &inferencev1.ListModelsRequest{})
			require.NoError(t, err, "the next call on the connection")

			r := s.client(t, readToken, o...)
			_, err = r.Control.ExplainRequest(within(t), &controlv1.ExplainRequestRequest{
				Request: &controlv1.ExplainRequestRequest_RequestId{RequestId: strings.Repeat("x", 5<<20)},
			})
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, fmt.Sprint(4<<20))
			require.ErrorContains(t, err, "52428", "its own size")
			_, err = r.Control.GetEdgeNodeSnapshot(within(t), &controlv1.GetEdgeNodeSnapshotRequest{})
			require.NoError(t, err, "the next call on the connection")
		})
	}
}

// slow answers nothing before its caller's deadline is over.
type slow struct {
	controlv1connect.UnimplementedControlServiceHandler
}

func (slow) GetEdgeNodeSnapshot(ctx context.Context, _ *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	<-ctx.Done()
	return nil, rpcerr.From(ctx.Err())
}

// A deadline that is over is one code in every protocol. Over plain HTTP, unary calls
// have status 504, streams 200 and the code in their last message.
func TestCase_K12_DeadlinesHaveOneCode(t *testing.T) {
	t.Parallel()
	_, h := controlv1connect.NewControlServiceHandler(slow{})
	waits := &site{url: serveH2C(t, h)}
	res, text := postJSON(t, waits, snapshot, "", `{}`, "Connect-Timeout-Ms", "1")
	require.Equal(t, http.StatusGatewayTimeout, res.StatusCode)
	require.Equal(t, "deadline_exceeded", codeOf(t, text))

	s := start(t, false)
	run := `{"model": "simulator", "messages": [{"role": "ROLE_USER", "parts": [{"text": "Hi"}]}], "sampling": {"maxOutputTokens": 100000}}`
	res, text = post(t, s, runPath, apiKey, "application/connect+json", enveloped(run), "Connect-Timeout-Ms", "200")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, text, `"code":"deadline_exceeded"`)
	require.Contains(t, text, `FAILURE_REASON_CANCELLED`)
}

// A page of an allowed origin may call with all that Connect and gRPC-Web send, and
// read what they answer with; a page of another may not.
func TestCase_K14_PreflightsOfConnectClients(t *testing.T) {
	t.Parallel()
	s := start(t, false)
	asked := "authorization,connect-protocol-version,connect-timeout-ms,content-type,grpc-timeout,x-grpc-web,x-user-agent"
	preflight := func(origin, path string) *http.Response {
		req, err := http.NewRequestWithContext(within(t), http.MethodOptions, s.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", http.MethodPost)
		req.Header.Set("Access-Control-Request-Headers", asked)
		res, err := http1(t).Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	for _, path := range []string{listModels, snapshot, setOverride, "/grpc.health.v1.Health/Check"} {
		res := preflight(otherPage, path)
		require.Equal(t, http.StatusNoContent, res.StatusCode, path)
		require.Equal(t, otherPage, res.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, res.Header.Get("Access-Control-Allow-Methods"), http.MethodPost)
		for name := range strings.SplitSeq(asked, ",") {
			require.Contains(t, strings.ToLower(res.Header.Get("Access-Control-Allow-Headers")), name)
		}
		require.Equal(t, http.StatusForbidden, preflight("https://evil.example", path).StatusCode, path)
	}
	res, _ := postJSON(t, s, snapshot, readToken, `{}`, "Origin", otherPage)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, otherPage, res.Header.Get("Access-Control-Allow-Origin"))
	for _, name := range []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"} {
		require.Contains(t, res.Header.Get("Access-Control-Expose-Headers"), name)
	}
	res, _ = postJSON(t, s, snapshot, readToken, `{}`, "Origin", "https://evil.example")
	require.Equal(t, http.StatusForbidden, res.StatusCode)
}
