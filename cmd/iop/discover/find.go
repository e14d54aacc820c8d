package discover

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Addresses are the host:port pairs where local inference servers usually
// listen: llama.cpp and MLX, vLLM and Lemonade, LM Studio, Ollama, Lemonade.
func Addresses() []string {
	return []string{"127.0.0.1:11434", "127.0.0.1:8080", "127.0.0.1:8000", "127.0.0.1:1234", "127.0.0.1:13305"}
}

// Findings are what answers on this machine, each list in the order of the
// addresses.
type Findings struct {
	Servers []Server
	// Unknown are addresses that list models but bear no known mark.
	Unknown []string
	// Edges are addresses of IOP Edges.
	Edges []string
}

// Find looks at all addresses at once. It takes as long as the slowest of them,
// at most some seconds, and less when ctx ends; whatever does not answer in time
// is not there.
func Find(ctx context.Context, addresses []string) Findings {
	client, closeIdle := newClient()
	defer closeIdle()
	type answer struct {
		server *Server
		err    error
	}
	answers := make([]answer, len(addresses))
	var wait sync.WaitGroup
	for i, address := range addresses {
		wait.Go(func() {
			server, err := identify(ctx, site{client, "http://" + address}, address)
			answers[i] = answer{server, err}
		})
	}
	wait.Wait()
	var found Findings
	for i, a := range answers {
		switch {
		case a.server != nil:
			found.Servers = append(found.Servers, *a.server)
		case errors.Is(a.err, errIsEdge):
			found.Edges = append(found.Edges, addresses[i])
		case errors.Is(a.err, errUnmarked):
			found.Unknown = append(found.Unknown, addresses[i])
		}
	}
	return found
}

// errUnmarked says that a server lists models and bears no mark.
var errUnmarked = errors.New("an OpenAI-compatible server of no known kind")

// identify tries the kinds in their order until one fits.
func identify(ctx context.Context, s site, address string) (*Server, error) {
	// Nobody there, or an Edge: one request tells.
	if _, err := s.get(ctx, "/v1/models"); err != nil {
		return nil, err
	}
	for _, kind := range Kinds() {
		p := probes[kind]
		if err := p.is(ctx, s); err != nil {
			if errors.Is(err, errIsEdge) || ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		server := &Server{Kind: kind, Address: address, BaseURL: s.root}
		if err := p.describe(ctx, s, server); err != nil {
			return nil, err
		}
		return server, nil
	}
	_, _, err := listOpenAI(ctx, s, "/v1/models")
	if err != nil {
		return nil, err
	}
	return nil, errUnmarked
}

// Inspect asks a server that is given by kind and URL for its models. It does
// not doubt the kind.
func Inspect(ctx context.Context, kind Kind, rawURL string) (Server, error) {
	p, known := probes[kind]
	if !known {
		return Server{}, fmt.Errorf("unknown provider type %q; one of %s", kind, kindNames())
	}
	root, err := parseRoot(rawURL)
	if err != nil {
		return Server{}, err
	}
	client, closeIdle := newClient()
	defer closeIdle()
	base := root.Scheme + "://" + root.Host + root.EscapedPath()
	server := Server{Kind: kind, Address: root.Host, BaseURL: base}
	if err := p.describe(ctx, site{client, base}, &server); err != nil {
		var transport *url.Error
		if errors.As(err, &transport) {
			err = transport.Err
		}
		return Server{}, fmt.Errorf("%s at %s cannot be asked for its models: %w", kind, base, err)
	}
	if len(server.Models) == 0 {
		return Server{}, fmt.Errorf("%s at %s has no models; load or pull one first", kind, base)
	}
	return server, nil
}

// parseRoot reads the root of a server, with or without a trailing slash or /v1.
func parseRoot(raw string) (*url.URL, error) {
	const expected = "expected http://host:port"
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a URL; %s", expected)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, fmt.Errorf("%q is no server's URL; %s", u.Redacted(), expected)
	case u.User != nil:
		return nil, fmt.Errorf("the URL holds a password, which would be shown; %s", expected)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL %q has a query or fragment; %s", raw, expected)
	}
	path := strings.TrimRight(u.Path, "/")
	u.Path, u.RawPath = strings.TrimRight(strings.TrimSuffix(path, "/v1"), "/"), ""
	return u, nil
}

func kindNames() string {
	names := make([]string, 0, len(probes))
	for kind := range probes {
		names = append(names, string(kind))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
