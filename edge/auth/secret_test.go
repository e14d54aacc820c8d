package auth_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
)

func TestCase_I11_ClientSecretOfEitherHeader(t *testing.T) {
	for _, c := range []struct{ bearer, key, want string }{
		{"", "", ""}, {"Bearer a", "", "a"}, {"", " b ", "b"}, {"Bearer a", "b", "a"}, {"Basic a", "b", "b"}, {"Bearer ", "b", "b"},
	} {
		h := http.Header{}
		h.Set("Authorization", c.bearer)
		h.Set("X-Api-Key", c.key)
		require.Equal(t, c.want, auth.ClientSecret(h), "%q and %q", c.bearer, c.key)
	}
}
