package edged

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/cmd/iop/discover"
)

func TestRoutes(t *testing.T) {
	say := func(what string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(what)) })
	}
	var rt routes
	rt.handle("/iop.admin.v1.AdminService/", say("admin"))
	ask := func(path string) string {
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		require.NotEmpty(t, w.Header().Get(discover.EdgeHeader), "known for an Edge")
		return w.Body.String()
	}
	require.Equal(t, "admin", ask("/iop.admin.v1.AdminService/ReloadConfig"))
	require.Contains(t, ask("/v1/models"), "not found")
	rt.rest = say("rest")
	for _, path := range []string{"/", "/v1/models", "/iop.admin.v1.AdminService", "/x/iop.admin.v1.AdminService/ReloadConfig", "/v1/../iop.admin.v1.AdminService/ReloadConfig", "//iop.admin.v1.AdminService/ReloadConfig"} {
		require.Equal(t, "rest", ask(path), path)
	}
	require.Equal(t, "rest", ask("/dashboard/"))
	rt.page = say("page")
	for path, want := range map[string]string{"/dashboard": "page", "/dashboard/": "page", "/dashboard/requests/1": "page", "/dashboards": "rest", "/x/dashboard/": "rest"} {
		require.Equal(t, want, ask(path), path)
	}
}
