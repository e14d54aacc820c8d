package nodeconfig

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// The defaults of node.yaml.
const (
	DefaultInterval    = 10 * time.Second
	DefaultMaxAttempts = 10
	DefaultStopGrace   = 30 * time.Second
)

// longestInterval bounds the pause between attempts.
const longestInterval = 24 * time.Hour

// Config is one valid configuration. Nobody changes it after Parse.
type Config struct {
	NodeID string
	// EdgeURL is http:// (h2c) or https://, without a trailing slash.
	EdgeURL string
	// CAFile is a PEM file with the Edge's certificate or its authority, and
	// CAPin the lower-case hexadecimal SHA-256 of that certificate. At most one is
	// set; without either the system's authorities count.
	CAFile, CAPin string
	Reconnect     Reconnect
	// StopGrace is how long running requests may go on once the node is told to
	// stop; 0 = not at all.
	StopGrace time.Duration
	// Endpoints is what base_url a provider may have.
	Endpoints Endpoints
	// Warnings are what works but is probably not meant; each with its place.
	Warnings []string

	// CredentialFile holds the token, in the place of another source, and is written
	// when the Edge replaces it; empty = it is never replaced.
	CredentialFile string

	token       configs.Secret
	credentials map[string]configs.Secret // by provider id
	effective   *configv1.NodeConfig
	doc         *configs.Document
	origins     *configs.Origins
}

// Reconnect paces the attempts to reach the Edge.
type Reconnect struct {
	// Interval is the pause between two attempts; always above 0.
	Interval time.Duration
	// MaxAttempts is the number of failures in a row, the first dial included,
	// after which the node gives up; 0 = never.
	MaxAttempts int
}

// Unlimited reports whether the node never gives up.
func (r Reconnect) Unlimited() bool { return r.MaxAttempts == 0 }

// Load reads and judges a file. An error about its content is
// [configs.Problems].
func Load(path string) (*Config, error) {
	text, err := configs.Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse judges the text of a file; path is its name in problems. An error is
// always [configs.Problems]: all that is wrong, at once. No other file is read.
func Parse(path string, text []byte) (*Config, error) {
	msg := &configv1.NodeConfig{}
	doc, problems := configs.Decode(path, text, msg)
	if !doc.Readable {
		return nil, problems.Err()
	}
	r := &reader{doc: doc, msg: msg, problems: problems}
	c := r.config()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	c.Warnings = r.warnings
	return c, nil
}

// Token is the node's own token.
func (c *Config) Token() (string, error) {
	secret, err := c.token.Read()
	if err != nil {
		return "", fmt.Errorf("node token: %w", err)
	}
	return secret, nil
}

// Credential is the Bearer key for a provider; empty when it has none.
func (c *Config) Credential(provider string) (string, error) {
	from, ok := c.credentials[provider]
	if !ok {
		return "", nil
	}
	secret, err := from.Read()
	if err != nil {
		return "", fmt.Errorf("credential of provider %q: %w", provider, err)
	}
	return secret, nil
}

// Providers are the ids for which there are credentials.
func (c *Config) Providers() []string {
	var ids []string
	for _, p := range c.effective.GetProviderCredentials() {
		ids = append(ids, p.GetProvider())
	}
	return ids
}

// Effective are the values in force, each with where it comes from. There are no
// secrets among them, only where they are.
func (c *Config) Effective() configs.Effective {
	values := configs.Values(c.effective)
	c.origins.Fill(values)
	return values
}

// CheckFiles judges the files and environment variables that the configuration
// names: certificates, the node's token and the keys of providers.
func (c *Config) CheckFiles() configs.FileProblems {
	var problems configs.FileProblems
	if c.CAFile != "" {
		problems.AddAuthorities(c.doc, "node.ca_file", c.CAFile)
	}
	tokenFile := "node.token_file"
	if c.CredentialFile != "" {
		tokenFile = "node.credential_file"
	}
	problems.AddSecret(c.doc, tokenFile, "node.token_env", c.token)
	for i, p := range c.effective.GetProviderCredentials() {
		path := fmt.Sprintf("provider_credentials[%d]", i)
		problems.AddSecret(c.doc, path+".key_file", path+".key_env", configs.Secret{File: p.GetKeyFile(), Env: p.GetKeyEnv()})
	}
	return problems
}

// reader judges a file across its messages. Each rule adds all it finds.
type reader struct {
	doc      *configs.Document
	msg      *configv1.NodeConfig
	problems configs.Problems
	warnings []string
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
	n := r.msg.GetNode()
	c := &Config{
		NodeID:      n.GetId(),
		EdgeURL:     r.edgeURL(),
		CAFile:      n.GetCaFile(),
		CAPin:       strings.ToLower(n.GetCaPin()),
		Reconnect:   r.reconnect(),
		StopGrace:   DefaultStopGrace,
		Endpoints:   r.endpoints(),
		credentials: r.credentials(),
	}
	if n != nil {
		c.CredentialFile = n.GetCredentialFile()
		c.token = r.tokenSource()
	}
	if n != nil && n.StopGraceMs != nil {
		c.StopGrace = time.Duration(n.GetStopGraceMs()) * time.Millisecond
	}
	c.effective, c.doc, c.origins = r.msg, r.doc, r.doc.Origins()
	if n != nil {
		n.StopGraceMs = new(uint32(c.StopGrace.Milliseconds()))
	}
	c.effective.Reconnect = &configv1.Reconnect{
		IntervalSec: new(c.Reconnect.Interval.Seconds()),
		MaxAttempts: new(int64(c.Reconnect.MaxAttempts)),
	}
	return c
}

func (r *reader) edgeURL() string {
	text := r.msg.GetNode().GetEdgeUrl()
	if text == "" {
		return "" // another rule has said so
	}
	u, err := url.Parse(text)
	const path = "node.edge_url"
	if err == nil {
		r.trust(u.Scheme)
	}
	switch {
	case err != nil:
		r.problem(path, "found %q; not a URL", configs.RedactURL(text))
	case u.Scheme != "http" && u.Scheme != "https":
		r.problem(path, "found %q; expected http:// or https://", configs.RedactURL(text))
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Path != "" && u.Path != "/":
		r.problem(path, "found %q; expected scheme, host and port only, as in https://edge.local:8485", configs.RedactURL(text))
	case u.Hostname() == "":
		r.problem(path, "found %q; expected a host, as in https://edge.local:8485", text)
	case !validPort(u):
		r.problem(path, "found %q; expected a port from 1 to 65535", text)
	default:
		return u.Scheme + "://" + u.Host
	}
	return ""
}

// trust judges how the Edge's certificate is checked.
func (r *reader) trust(scheme string) {
	file, pin := r.msg.GetNode().GetCaFile() != "", r.msg.GetNode().GetCaPin() != ""
	switch {
	case file && pin:
		r.problem("node.ca_pin", "ca_file and ca_pin are both given; keep one")
	case scheme == "http" && (file || pin):
		r.problem("node.edge_url", "found http://, which has no certificate to check; write https://, or remove ca_file and ca_pin")
	}
}

// reconnect applies the defaults to what is omitted only: a written 0 attempts
// is unlimited (S17).
func (r *reader) reconnect() Reconnect {
	msg := r.msg.GetReconnect()
	out := Reconnect{Interval: DefaultInterval, MaxAttempts: DefaultMaxAttempts}
	if msg != nil && msg.MaxAttempts != nil {
		const most = 1<<31 - 1
		if msg.GetMaxAttempts() > most {
			r.problem("reconnect.max_attempts", "found %d; at most %d, or 0 = unlimited", msg.GetMaxAttempts(), most)
		}
		out.MaxAttempts = int(msg.GetMaxAttempts())
	}
	if msg == nil || msg.IntervalSec == nil {
		return out
	}
	const path = "reconnect.interval_sec"
	switch seconds := msg.GetIntervalSec(); {
	case seconds > longestInterval.Seconds():
		r.problem(path, "found %v; at most %v (a day)", seconds, longestInterval.Seconds())
	case seconds > 0:
		out.Interval = max(time.Millisecond, time.Duration(seconds*float64(time.Second)))
	case out.Unlimited():
		r.problem(path, "found %v; unlimited attempts (max_attempts: 0) need a pause above 0", seconds)
	default:
		r.warn(path, "found %v; attempts are paced at %v", seconds, DefaultInterval)
	}
	return out
}

// credentials are where the keys of providers come from.
func (r *reader) credentials() map[string]configs.Secret {
	out, first := map[string]configs.Secret{}, map[string]string{}
	for i, p := range r.msg.GetProviderCredentials() {
		path := fmt.Sprintf("provider_credentials[%d]", i)
		if other, taken := first[p.GetProvider()]; taken && p.GetProvider() != "" {
			r.problem(path+".provider", "provider %q already has a credential on %s", p.GetProvider(), r.doc.Where(other))
		}
		first[p.GetProvider()] = path
		out[p.GetProvider()] = r.source(path, "key", p.GetKeyFile(), p.GetKeyEnv())
	}
	return out
}
