package edged

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/services/admin"
)

// everyRole is an Edge with a credential of each role.
const everyRole = `
edge:
  id: home
  listen: "127.0.0.1:0"
  auth: {mode: keys}
  state_dir: "%state"
  read_tokens: [{name: reader, sha256: "%read"}]
  admin_tokens: [{name: operator, sha256: "%admin"}]
openai: {api_keys: [{name: laptop, sha256: "%key"}]}
nodes:
  - id: n
    token_sha256: "%node"
    providers: [{id: p, type: simulator, capacity: 1}]
  - {id: joins, providers: [{id: p, type: simulator, capacity: 1}]}
models: [{id: m, providers: [{node: n, provider: p, target: t}]}]
`

// Who may call what, for each path that is mounted: a route without a row here is a
// mistake.
func TestEveryRouteIsForItsRolesOnly(t *testing.T) {
	secrets := map[string]string{"nobody": "", "wrong": "wrong-4711", "key": "key-4711", "node": "node-4711", "read": "read-4711", "admin": "admin-4711"}
	text := strings.ReplaceAll(everyRole, "%state", filepath.ToSlash(t.TempDir()))
	for role, secret := range secrets {
		text = strings.ReplaceAll(text, "%"+role, auth.HashToken(secret))
	}
	e := serveText(t, text)
	// Secrets that were made on the Edge.
	by := secretsOf{e}
	made := func(secret string, err error) string { require.NoError(t, err); return secret }
	key, _, err := by.CreateKey(admin.Caller{}, credentials.NewKey{Name: "issued"})
	secrets["issued"] = made(key, err)
	token, _, err := by.CreateJoinToken(admin.Caller{}, "joins", 0)
	credential, _, err2 := e.secrets.Join(made(token, err), "joins")
	secrets["credential"] = made(credential, err2)
	token, _, err = by.CreateJoinToken(admin.Caller{}, "joins", 0)
	secrets["join"] = made(token, err)
	const (
		all       = "admin credential issued join key nobody node read wrong"
		none      = ""
		keys      = "issued key"
		readers   = "admin read"
		operators = "admin"
		known     = "admin issued key read"
	)
	rows := []struct{ path, allowed string }{
		{"/iop.inference.v1.InferenceService/ListModels", keys},
		{"/iop.inference.v1.InferenceService/Run", keys},
		{"/iop.control.v1.ControlService/GetEdgeNodeSnapshot", readers},
		{"/iop.control.v1.ControlService/WatchEdgeNodeSnapshot", readers},
		{"/iop.control.v1.ControlService/ExplainRequest", readers},
		{"/iop.control.v1.ControlService/GetHistory", readers},
		{"/iop.admin.v1.AdminService/ReloadConfig", operators},
		{"/iop.admin.v1.AdminService/CheckConfig", operators},
		{"/iop.admin.v1.AdminService/CancelRequest", operators},
		{"/iop.admin.v1.AdminService/SetOverride", operators},
		{"/iop.admin.v1.AdminService/ResetEstimates", operators},
		{"/iop.admin.v1.AdminService/CreateKey", operators},
		{"/iop.admin.v1.AdminService/ListKeys", operators},
		{"/iop.admin.v1.AdminService/RevokeKey", operators},
		{"/iop.admin.v1.AdminService/CreateJoinToken", operators},
		{"/iop.admin.v1.AdminService/ListNodeCredentials", operators},
		{"/iop.admin.v1.AdminService/RevokeNode", operators},
		// They judge their tokens themselves: a session's with the node's id of its first message, as services/nodelink tests;
		// a work stream's is the session's, which nobody here has.
		{"/iop.runtime.v1.NodeLinkService/Session", all},
		{"/iop.runtime.v1.NodeLinkService/Work", none},
		// It judges its token itself, too: services/join tests it.
		{"/iop.runtime.v1.JoinService/Join", all},
		{"/grpc.health.v1.Health/Check", all},
		{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", known},
		{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", known},
		{metricsPath, readers},
		{"/dashboard/", all},
		{"/healthz", all},
		{"/readyz", all},
		{"/v1/models", keys},
		{"/api/tags", keys},
		{"/nowhere", none},
	}
	mux := e.servers[0].http.Handler.(*routes)
	for _, name := range mux.names() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if service, ok := d.(protoreflect.ServiceDescriptor); err == nil && ok && strings.HasPrefix(name, "iop.") {
			for i := range service.Methods().Len() {
				path := "/" + name + "/" + string(service.Methods().Get(i).Name())
				require.True(t, slices.ContainsFunc(rows, func(r struct{ path, allowed string }) bool { return r.path == path }), "%s has no row", path)
			}
		}
		require.True(t, slices.ContainsFunc(rows, func(r struct{ path, allowed string }) bool {
			return strings.HasPrefix(r.path, "/"+name+"/")
		}), "%s is mounted and has no row", name)
	}
	roles := strings.Fields(all)
	for _, row := range rows {
		var allowed []string
		for _, role := range roles {
			if passes(t, mux, row.path, secrets[role]) {
				allowed = append(allowed, role)
			}
		}
		require.Equal(t, row.allowed, strings.Join(allowed, " "), row.path)
	}
}

// passes reports whether a call gets past the guard of its route; what the call then
// comes to is another matter.
func passes(t *testing.T, h http.Handler, path, secret string) bool {
	t.Helper()
	rpc := strings.HasPrefix(path, "/iop.") || strings.HasPrefix(path, "/grpc.")
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if rpc {
		// It is no message: a call that gets past the guard ends at the framework and does nothing.
		r = httptest.NewRequest(http.MethodPost, path, strings.NewReader("\xff"))
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		r.Header.Set("Content-Type", "application/grpc+proto")
		r.Header.Set("Te", "trailers")
	}
	r.Host = "127.0.0.1:8484"
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	res := w.Result()
	if !rpc {
		return res.StatusCode < 400 || res.StatusCode == http.StatusServiceUnavailable
	}
	status := res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status")
	return res.StatusCode == http.StatusOK && status != "16"
}
