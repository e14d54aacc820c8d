package fleetconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// The defaults of controlplane.yaml.
const (
	DefaultListen       = "127.0.0.1:8490"
	DefaultPullInterval = 2 * time.Second
	DefaultPullTimeout  = 1500 * time.Millisecond
	DefaultStaleAfter   = 10 * time.Second
)

const (
	authTokens = "tokens"
	authNone   = "none"
)

// Config is one valid configuration. Nobody changes it after Parse.
type Config struct {
	Listen string
	// StateDir is where the history is kept; empty = in memory only.
	StateDir                              string
	PullInterval, PullTimeout, StaleAfter time.Duration
	// ReadTokens may read the fleet; Open lets everybody.
	ReadTokens []ReadToken
	Open       bool
	// CertFile and KeyFile are PEM files; empty = no TLS.
	CertFile, KeyFile string
	Edges             []Edge
	// Warnings are what works but is probably not meant; each with its place.
	Warnings []string

	effective *configv1.ControlPlaneConfig
	doc       *configs.Document
	origins   *configs.Origins
	absent    configs.Problems
}

// ReadToken is one credential of a reader.
type ReadToken struct {
	Name string
	// Hash is the SHA-256 of the token in hexadecimal.
	Hash string
}

// Edge is one Edge to read.
type Edge struct {
	ID string
	// URL is http:// or https://, without a trailing slash.
	URL string
	// CAFile is a PEM file with the Edge's certificate or its authority, and CAPin
	// the lower-case hexadecimal SHA-256 of that certificate. At most one is set;
	// without either the system's authorities count.
	CAFile, CAPin string

	token configs.Secret
}

// Token is the Edge's read token.
func (e Edge) Token() (string, error) {
	secret, err := e.token.Read()
	if err != nil {
		return "", fmt.Errorf("read token of Edge %q: %w", e.ID, err)
	}
	return secret, nil
}

// Load reads and judges a file. An error about its content is
// [configs.Problems].
func Load(path string) (*Config, error) {
	text, err := configs.Read(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text, false)
}

// Parse judges the text of a file; path is its name in problems. An error is
// always [configs.Problems]: all that is wrong, at once.
func Parse(path string, text []byte) (*Config, error) { return parse(path, text, false) }

// ParseElsewhere is Parse for a file that may be meant for another machine: where
// the token of a reader is not here, [Config.CheckFiles] says so.
func ParseElsewhere(path string, text []byte) (*Config, error) { return parse(path, text, true) }

func parse(path string, text []byte, elsewhere bool) (*Config, error) {
	msg := &configv1.ControlPlaneConfig{}
	doc, problems := configs.Decode(path, text, msg)
	if !doc.Readable {
		return nil, problems.Err()
	}
	r := &reader{doc: doc, msg: msg, problems: problems, elsewhere: elsewhere, origins: doc.Origins()}
	c := r.config()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	c.Warnings, c.absent = r.warnings, r.absent
	return c, nil
}

// Effective are the values in force, each with where it comes from. There are no
// secrets among them, only where they are.
func (c *Config) Effective() configs.Effective {
	values := configs.Values(c.effective)
	c.origins.Fill(values)
	return values
}

// CheckFiles judges the files and environment variables that the configuration
// names: certificates and tokens.
func (c *Config) CheckFiles() configs.FileProblems {
	problems := configs.FileProblems{Missing: c.absent}
	if c.CertFile != "" {
		problems.AddKeyPair(c.doc, "controlplane.tls.cert_file", c.CertFile, "controlplane.tls.key_file", c.KeyFile)
	}
	for i, e := range c.Edges {
		path := fmt.Sprintf("edges[%d]", i)
		if e.CAFile != "" {
			problems.AddAuthorities(c.doc, path+".ca_file", e.CAFile)
		}
		problems.AddSecret(c.doc, path+".token_file", path+".token_env", e.token)
	}
	return problems
}

// reader judges a file across its messages. Each rule adds all it finds.
type reader struct {
	doc       *configs.Document
	msg       *configv1.ControlPlaneConfig
	problems  configs.Problems
	warnings  []string
	absent    configs.Problems
	origins   *configs.Origins
	elsewhere bool
}

// problem adds a finding, unless the value itself has been complained about.
func (r *reader) problem(path, format string, args ...any) {
	if r.doc.Broken(path) {
		return
	}
	r.problems = append(r.problems, r.doc.Problemf(path, format, args...))
}

func (r *reader) warn(path, format string, args ...any) {
	r.warnings = append(r.warnings, r.doc.Problemf(path, format, args...).String())
}

func (r *reader) config() *Config {
	if r.msg.Controlplane == nil {
		r.msg.Controlplane = &configv1.ControlPlane{}
	}
	m := r.msg.GetControlplane()
	if m.GetListen() == "" {
		m.Listen = DefaultListen
	}
	c := &Config{
		Listen: m.GetListen(), StateDir: m.GetStateDir(), CertFile: m.GetTls().GetCertFile(), KeyFile: m.GetTls().GetKeyFile(),
		PullInterval: period(&m.PullIntervalMs, DefaultPullInterval),
		PullTimeout:  period(&m.PullTimeoutMs, DefaultPullTimeout),
		StaleAfter:   period(&m.StaleAfterMs, DefaultStaleAfter),
		ReadTokens:   r.readTokens(),
		effective:    r.msg, doc: r.doc, origins: r.origins,
	}
	r.pace(c)
	r.listener()
	mode := m.GetAuth().GetMode()
	c.Open = mode == authNone || mode == "" && len(m.GetReadTokens()) == 0
	if mode == "" {
		m.Auth = &configv1.FleetAuth{Mode: authTokens}
		if c.Open {
			m.Auth.Mode = authNone
		}
	}
	c.Edges = r.edges()
	return c
}

// period is a written number of milliseconds, or the default, which is then
// written.
func period(ms **uint32, or time.Duration) time.Duration {
	if *ms == nil {
		*ms = new(uint32(or.Milliseconds()))
	}
	return time.Duration(**ms) * time.Millisecond
}

// pace judges the three times together.
func (r *reader) pace(c *Config) {
	const path = "controlplane.stale_after_ms"
	for _, other := range []string{"controlplane.pull_interval_ms", "controlplane.pull_timeout_ms"} {
		if r.doc.Broken(other) {
			return
		}
	}
	switch {
	case c.StaleAfter <= c.PullInterval:
		r.problem(path, "found %d; it must be above pull_interval_ms %d, or an Edge that answers is stale", c.StaleAfter.Milliseconds(), c.PullInterval.Milliseconds())
	case c.StaleAfter < c.PullInterval+c.PullInterval/5+c.PullTimeout:
		r.warn(path, "found %d; with pull_interval_ms %d and pull_timeout_ms %d one slow answer makes an Edge stale",
			c.StaleAfter.Milliseconds(), c.PullInterval.Milliseconds(), c.PullTimeout.Milliseconds())
	}
}

// hashOfNothing is the SHA-256 of an empty secret.
var hashOfNothing = hashOf("")

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// readTokens judges the tokens of readers, and puts the hash of each secret that
// the file only points to in the place of the hash.
func (r *reader) readTokens() (out []ReadToken) {
	names, hashes := map[string]string{}, map[string]string{}
	for i, t := range r.msg.GetControlplane().GetReadTokens() {
		path := fmt.Sprintf("controlplane.read_tokens[%d]", i)
		if first, taken := names[t.GetName()]; taken && t.GetName() != "" {
			r.problem(path+".name", "read token name %q is taken on %s", t.GetName(), r.doc.Where(first))
		}
		names[t.GetName()] = path + ".name"
		hash := r.hashOf(path, t)
		if hash == "" {
			continue
		}
		if first, taken := hashes[hash]; taken {
			r.problem(path, "%q has the same secret as %s on %s; one secret serves one name", t.GetName(), first, r.doc.Where(first))
		}
		if hash == hashOfNothing {
			r.problem(path+".sha256", "this is the SHA-256 of an empty secret; hash a secret that is not empty")
		}
		hashes[hash] = path
		out = append(out, ReadToken{t.GetName(), hash})
	}
	return out
}

// hashOf settles one token: its hash, or where it is. Empty = it is not known.
func (r *reader) hashOf(path string, t *configv1.Token) string {
	var given []string
	for _, v := range [][2]string{{"sha256", t.GetSha256()}, {"token_file", t.GetTokenFile()}, {"token_env", t.GetTokenEnv()}} {
		if r.doc.Broken(path + "." + v[0]) {
			return "" // something is given, which is not known
		}
		if v[1] != "" {
			given = append(given, v[0])
		}
	}
	switch {
	case len(given) == 0:
		r.problem(path, "missing; give sha256, the SHA-256 of the token, or token_file or token_env, which says where the token is")
		return ""
	case len(given) > 1:
		r.problem(path+"."+given[len(given)-1], "%s are given; keep one", strings.Join(given, " and "))
		return ""
	case given[0] == "sha256":
		return strings.ToLower(t.GetSha256())
	case given[0] == "token_env" && !configs.IsVariable(t.GetTokenEnv()):
		r.problem(path+".token_env", "found %d characters; expected the name of an environment variable", len(t.GetTokenEnv()))
		return ""
	}
	from := configs.Secret{File: t.GetTokenFile(), Env: t.GetTokenEnv()}
	text, err := from.Read()
	if err != nil {
		var files configs.FileProblems
		files.AddSecret(r.doc, path+".token_file", path+".token_env", from)
		if !r.elsewhere || len(files.Wrong) > 0 {
			r.problems = append(r.problems, files.All()...)
			return ""
		}
		r.absent = append(r.absent, files.Missing...)
		text = path // in its place, and nobody's secret: no two paths are the same
	}
	t.Sha256 = hashOf(text)
	r.origins.Note(path+".sha256", configs.FromInherited, "from "+given[0], path+"."+given[0])
	return t.Sha256
}
