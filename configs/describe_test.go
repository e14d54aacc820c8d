package configs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

func texts(a, b proto.Message) []string {
	var out []string
	for _, c := range configs.Diff(a, b) {
		out = append(out, c.Text)
	}
	return out
}

// What Describe writes, secrets apart, reads back as the same message.
func TestDescribeIsTheFormOfTheFile(t *testing.T) {
	cfg := &configv1.EdgeConfig{}
	require.NoError(t, configs.Unmarshal("edge.yaml", []byte(configs.EdgeExample), cfg))
	var out strings.Builder
	require.NoError(t, configs.Values(cfg).Write(&out))
	require.NotContains(t, out.String(), cfg.Nodes[0].TokenSha256)

	again := &configv1.EdgeConfig{}
	readable := strings.ReplaceAll(out.String(), "(set)", strings.Repeat("a1", 32))
	require.NoError(t, configs.Unmarshal("edge.yaml", []byte(readable), again))
	for _, change := range texts(cfg, again) {
		require.True(t, strings.HasSuffix(change, "sha256: changed"), change)
	}
}

func TestDescribeQuotesWhatNeedsIt(t *testing.T) {
	var out strings.Builder
	require.NoError(t, configs.Values(&configv1.OpenAI{Cors: &configv1.Cors{AllowedOrigins: []string{"http://a", "b c", "d,e\n"}}}).Write(&out))
	require.Contains(t, out.String(), `allowed_origins: [http://a, "b c", "d,e\n"]`)
}

func TestDiff(t *testing.T) {
	a := &configv1.EdgeConfig{
		Edge:   &configv1.Edge{Id: "home", AdminTokens: []*configv1.Token{{Name: "me", Sha256: "1"}}},
		Models: []*configv1.Model{{Id: "a"}, {Id: "b", Providers: []*configv1.Candidate{{Node: "n", Provider: "p"}}}, {Id: "c"}},
	}
	b := proto.CloneOf(a)
	require.Empty(t, configs.Diff(a, b))

	b.Edge.Id = "away"
	b.Edge.Tls = &configv1.Tls{CertFile: "x.crt"}
	b.Edge.AdminTokens[0].Sha256 = "2"
	b.Models[0].Id = "renamed"
	b.Models[1].Providers[0].Target = "t u"
	b.Models[1], b.Models[2] = b.Models[2], b.Models[1]
	b.ProviderPool = &configv1.ProviderPool{MaxQueue: proto.Uint32(0)}
	require.Equal(t, []string{
		"edge.id: home -> away",
		"edge.tls.cert_file: (none) -> x.crt",
		"edge.admin_tokens[me].sha256: changed",
		"provider_pool.max_queue: (none) -> 0",
		"models[a]: removed",
		`models[b].providers[n/p].target: (none) -> "t u"`,
		"models[renamed]: added",
		"models: order changed",
	}, texts(a, b))
	require.Equal(t, "models.providers.target", configs.Diff(a, b)[5].Field)
}
