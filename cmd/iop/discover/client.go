package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// EdgeHeader marks every reply of an IOP Edge, which is no provider.
const EdgeHeader = "X-Iop-Edge"

// edgeOwner is whom an Edge names as the owner of its models.
const edgeOwner = "iop"

// errIsEdge says that an Edge answers at an address.
var errIsEdge = errors.New("this is an IOP Edge, not an inference server")

// maxReply bounds a reply in bytes: a list of some thousand models fits.
const maxReply = 4 << 20

// requestTimeout bounds one request. A server on loopback that needs longer is
// not ready to serve.
const requestTimeout = time.Second

// newClient makes a client which goes to the address it is given and nowhere
// else.
func newClient() (client *http.Client, closeIdle func()) {
	transport := &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 1}
	return &http.Client{
		Transport:     transport,
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport.CloseIdleConnections
}

// site is one server as seen by its probes.
type site struct {
	client *http.Client
	// root is the base URL without a trailing slash.
	root string
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// get fetches a path. It fails for an IOP Edge, whatever that answers.
func (s site) get(ctx context.Context, path string) (*reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.root+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.Header.Get(EdgeHeader) != "" {
		return nil, errIsEdge
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &reply{status: response.StatusCode, header: response.Header, body: body}, nil
}

// json fetches a path whose answer must be a 200 of the given shape.
func (s site) json(ctx context.Context, path string, into any) (*reply, error) {
	r, err := s.get(ctx, path)
	if err != nil {
		return nil, err
	}
	if r.status != http.StatusOK {
		return r, fmt.Errorf("GET %s: status %d", path, r.status)
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return r, fmt.Errorf("GET %s: the answer is not the JSON that was expected", path)
	}
	return r, nil
}

// serverHeader is the product of the Server header, in lower case.
func (r *reply) serverHeader() string {
	if r == nil {
		return ""
	}
	return strings.ToLower(r.header.Get("Server"))
}
