package provider

import (
	"fmt"
	"net/url"
	"strings"
)

// paths is every path a request may name: the endpoints of the
// OpenAI-compatible contract. It is the reason why no client can choose a path
// on a provider.
var paths = []string{
	"/v1/chat/completions",
	"/v1/completions",
	"/v1/responses",
	"/v1/embeddings",
	"/v1/messages",
	"/v1/messages/count_tokens",
	"/v1/rerank",
	"/v1/audio/speech",
	"/v1/audio/transcriptions",
	"/v1/audio/translations",
	"/v1/images/generations",
}

// ollamaPaths are those that only a provider of type ollama is asked for besides:
// of its native API what runs a model, and nothing that changes or lists models.
var ollamaPaths = []string{
	"/api/chat",
	"/api/generate",
	"/api/embed",
	"/api/embeddings",
}

// parseBaseURL reads the root of a server. People write it with and without a
// trailing slash and /v1; all spellings mean the same root (E22).
func parseBaseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil:
		return nil, fmt.Errorf("base_url %q is not a URL", raw)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("base_url %q must begin with http:// or https://", raw)
	case u.Hostname() == "":
		return nil, fmt.Errorf("base_url %q names no host", raw)
	case u.User != nil:
		return nil, fmt.Errorf("base_url of host %q must not hold a user or password; credentials belong into the node's own configuration", u.Hostname())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("base_url of host %q must hold neither a query nor a fragment", u.Hostname())
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	path = strings.TrimRight(strings.TrimSuffix(path, "/v1"), "/")
	root := &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}
	if root.Path, err = url.PathUnescape(path); err != nil {
		return nil, fmt.Errorf("base_url %q has a malformed path", raw)
	}
	if root.Path != path {
		root.RawPath = path
	}
	return root, nil
}

// endpoints is the full URL, below root, of each path that a provider of that type may be asked for.
func endpoints(root *url.URL, kind string) map[string]*url.URL {
	all := make(map[string]*url.URL, len(paths))
	for _, path := range paths {
		all[path] = below(root, path)
	}
	if kind == lemonadeType { // which has it under this name alone
		all["/v1/rerank"] = below(root, "/v1/reranking")
	}
	if kind == ollamaType {
		for _, path := range ollamaPaths {
			all[path] = below(root, path)
		}
	}
	return all
}

// below is the URL of path below root.
func below(root *url.URL, path string) *url.URL {
	u := *root
	u.Path += path
	if u.RawPath != "" {
		u.RawPath += path
	}
	return &u
}

// physical names the server behind a root, whatever its spelling, so that one
// server has one gate: localhost is 127.0.0.1, and default ports are written out.
func physical(root *url.URL) string {
	host, port := root.Hostname(), root.Port()
	if host == "localhost" || host == "::1" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "80"
		if root.Scheme == "https" {
			port = "443"
		}
	}
	return host + ":" + port + root.EscapedPath()
}
