package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// baseURL is where a node reaches an inference server.
type baseURL struct {
	// root is what the node is told: no trailing slash, no /v1.
	root string
	// identity is the same for all spellings of one server: scheme and host in
	// lower case, localhost = 127.0.0.1, the port written out.
	identity string
}

func parseBaseURL(text string) (baseURL, error) {
	if !strings.Contains(text, "://") {
		return baseURL{}, errors.New("expected http:// or https:// in front of it")
	}
	u, err := url.Parse(text)
	if err != nil {
		// The text may hold a password: the cause without the text.
		var wrong *url.Error
		if errors.As(err, &wrong) {
			err = wrong.Err
		}
		if strings.ContainsAny(text, "@?") {
			return baseURL{}, errors.New("not a URL")
		}
		return baseURL{}, fmt.Errorf("not a URL: %w", err)
	}
	scheme := strings.ToLower(u.Scheme)
	switch {
	case scheme != "http" && scheme != "https":
		return baseURL{}, errors.New("expected http:// or https://")
	case u.User != nil:
		return baseURL{}, errors.New("a password has no place here: credentials of providers live on the node (provider_credentials)")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return baseURL{}, errors.New("expected no query and no fragment")
	case u.Hostname() == "":
		return baseURL{}, errors.New("expected a host, as in http://127.0.0.1:8000")
	}
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return baseURL{}, errors.New("expected a port after the colon")
		}
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return baseURL{}, errors.New("expected a port from 1 to 65535")
	} else {
		port = strconv.FormatUint(n, 10)
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	path = strings.TrimRight(strings.TrimSuffix(path, "/v1"), "/")
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return baseURL{
		root:     scheme + "://" + u.Host + path,
		identity: scheme + "://" + host + ":" + port + path,
	}, nil
}
