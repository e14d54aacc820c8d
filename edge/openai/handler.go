package openai

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

// Dispatcher carries one request. *dispatch.Dispatcher is one.
type Dispatcher interface {
	Do(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error
}

// Handler serves the surface. Use [New].
type Handler struct {
	dispatcher  Dispatcher
	calibration *estimate.Calibration
	log         *slog.Logger
	clock       clockwork.Clock
	settings    atomic.Pointer[active]
	// drainUntil is when a draining Edge is expected to have stopped, in Unix nanoseconds; 0 = not draining.
	drainUntil atomic.Int64
	watcher    Watcher // nil = nobody
}

// Watcher counts requests. Exactly one of these follows each Received: the Dispatcher gets it, Refused, Local.
type Watcher interface {
	// Received says that a request has come.
	Received()
	// Refused says that a request ended before it was dispatched, and by which code of the error table; "client_gone" if nobody could be told.
	Refused(code string)
	// Local says that the handler itself has answered.
	Local()
}

// Watch has w told of every request. Call it before the first one.
func (h *Handler) Watch(w Watcher) { h.watcher = w }

// fate is what has become of a request.
type fate struct {
	begun      bool   // a part of a provider's answer was sent
	dispatched bool   // the Dispatcher got it
	refused    string // code of what was answered instead; "client_gone" until anything is
}

// tell passes a request's fate on.
func (h *Handler) tell(f *fate) {
	switch {
	case h.watcher == nil || f.dispatched:
	case f.refused != "":
		h.watcher.Refused(f.refused)
	default:
		h.watcher.Local()
	}
}

// New returns a handler that serves with s until [Handler.Apply]. It tells c what providers count.
func New(d Dispatcher, c *estimate.Calibration, log *slog.Logger, s Settings) *Handler {
	h := &Handler{dispatcher: d, calibration: c, log: log, clock: clockwork.NewRealClock()}
	h.Apply(s)
	return h
}

// Apply replaces the settings. Requests under way keep theirs.
func (h *Handler) Apply(s Settings) { h.settings.Store(activate(s)) }

// Drain refuses new requests from now on: the Edge stops in at most grace. It cannot be undone.
func (h *Handler) Drain(grace time.Duration) { h.drainUntil.Store(time.Now().Add(grace).UnixNano()) }

// ServeHTTP routes one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r)
	w.Header()["X-Request-Id"] = []string{id}
	as := dialectOf(r)
	if as.idHeader != "" {
		w.Header()[as.idHeader] = []string{id}
	}
	if h.watcher != nil {
		h.watcher.Received()
	}
	f := fate{refused: "client_gone"}
	defer h.tell(&f)
	defer h.recovered(w, as, id, &f)
	p := h.route(w, r, id, &f)
	f.refused = ""
	if p != nil {
		f.refused = p.code
		p.hangUp = p.hangUp && r.ProtoMajor == 1 // HTTP/2 resets the stream; a close would end its neighbours' connection
		p.write(w, as)
		linger(w, r)
	}
}

// route serves the request, or returns what to answer instead.
func (h *Handler) route(w http.ResponseWriter, r *http.Request, id string, f *fate) *problem {
	s := h.settings.Load()
	crossOrigin(w, r, s)
	if headerSize(r) > s.HeaderLimit {
		return &problem{status: http.StatusRequestHeaderFieldsTooLarge, code: "headers_too_large", kind: invalidRequest, hangUp: true,
			message: "The request's header fields are too large."}
	}
	path := pathOf(r)
	e := endpointOf(path)
	page := ollamaPageOf(path)
	isModels := path == modelsPath || strings.HasPrefix(path, modelsPath+"/") && len(path) > len(modelsPath)+1
	allow := reading
	switch {
	case e != nil:
		allow = http.MethodPost
	case page != nil:
		allow = page.allow
	case isModels, path == "/healthz", path == "/readyz":
	default:
		return &problem{status: http.StatusNotFound, code: "not_found", kind: invalidRequest, message: "There is nothing at this path."}
	}
	switch {
	case r.Method == http.MethodOptions:
		options(w, r, allow)
		return nil
	case !allows(allow, r.Method):
		return &problem{status: http.StatusMethodNotAllowed, code: "method_not_allowed", kind: invalidRequest, allow: allow,
			message: "This path takes " + allow + " only."}
	case page != nil && page.open:
		return page.serve(h, w, r, s, nil)
	case e == nil && page == nil && !isModels:
		h.health(w, r)
		return nil
	}
	key, p := authenticate(r, s.Keys)
	switch {
	case p != nil:
		return p
	case isModels:
		return h.models(w, r, s, key)
	case page != nil:
		return page.serve(h, w, r, s, key)
	}
	return h.exchange(w, r, s, e, key, id, f)
}

// reading is what a path takes that is only looked at.
const reading = "GET, HEAD"

func allows(list, method string) bool { return slices.Contains(strings.Split(list, ", "), method) }

// pathOf is the path by which a request is routed. An encoded slash is none, so that a path has one spelling; in a model's name it may stand.
func pathOf(r *http.Request) string {
	raw := r.URL.RawPath
	if raw == "" || strings.HasPrefix(raw, modelsPath+"/") || !strings.Contains(strings.ToLower(raw), "%2f") {
		return r.URL.Path
	}
	return raw
}

// dialectOf is how whoever asks reads errors.
func dialectOf(r *http.Request) *dialect {
	path := r.URL.Path
	if e := endpointOf(path); e != nil {
		return e.errors
	}
	switch {
	case strings.HasPrefix(path, ollamaAPI):
		return ollama
	case strings.HasPrefix(path, messagesAPI), asksInAnthropic(r):
		return anthropic
	}
	return openAI
}

// health answers probes, without a key and without a detail (I14).
func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	type health struct {
		Status string `json:"status"`
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Path == "/readyz" && h.drainUntil.Load() != 0 {
		writeJSON(w, r, http.StatusServiceUnavailable, health{"draining"})
		return
	}
	writeJSON(w, r, http.StatusOK, health{"ok"})
}

// exchange carries one request to a provider and its answer back.
func (h *Handler) exchange(w http.ResponseWriter, r *http.Request, s *active, e *endpoint, key *auth.APIKey, id string, f *fate) *problem {
	if p := h.draining(); p != nil {
		return p
	}
	request, found, p := h.prepare(w, r, s, e, key, id)
	if p != nil {
		return p
	}
	if key != nil {
		release, ok := key.Admit()
		if !ok {
			return &problem{status: http.StatusTooManyRequests, code: "key_limit", kind: rateLimit, retryAfter: 1,
				message: "This API key has as many requests running as it may. Retry when one has ended."}
		}
		defer release()
	}
	y := newRelay(w, e, found.quotedModel(request.Body), h.clock, s.StallTimeout)
	defer func() {
		y.quiet()
		f.begun = y.begun
		y.free()
	}()
	ctx := r.Context()
	if s.Keepalive > 0 && found.Stream && e.comments {
		var gone context.CancelFunc
		ctx, gone = context.WithCancel(ctx)
		defer gone()
		y.keep = &keepalive{clock: h.clock, every: s.Keepalive, gone: gone, relay: y}
	}
	f.dispatched = true
	err := h.dispatcher.Do(ctx, request, y)
	y.quiet()
	var reported *reportedError
	var late *lateError
	switch {
	case err == nil:
		if target, tokens := y.counted(); tokens > 0 {
			h.calibration.Observe(target, request.Input.Estimate, tokens)
		}
		return nil
	case errors.As(err, &reported):
		return nil
	case errors.As(err, &late):
		y.failed(late.problem)
		return nil
	}
	if p = h.failed(ctx, y, s, id, err); p != nil && y.begun {
		y.failed(*p)
		return nil
	}
	return p
}

// draining refuses a request because the Edge stops; nil while it does not.
func (h *Handler) draining() *problem {
	until := h.drainUntil.Load()
	if until == 0 {
		return nil
	}
	return drainingProblem(time.Until(time.Unix(0, until)))
}

func drainingProblem(left time.Duration) *problem {
	return &problem{status: http.StatusServiceUnavailable, code: "draining", kind: serverError, hangUp: true,
		retryAfter: seconds(left), message: "The server is shutting down. Retry later."}
}

// prepare reads the request and turns it into dispatch's terms.
func (h *Handler) prepare(w http.ResponseWriter, r *http.Request, s *active, e *endpoint, key *auth.APIKey, id string) (*dispatch.Request, *scanned, *problem) {
	body, err := readBody(w, r, s, e.body)
	var p *problem
	switch {
	case errors.As(err, &p):
		return nil, nil, p
	case errors.Is(err, dispatch.ErrStopped):
		return nil, nil, drainingProblem(0)
	case err != nil:
		panic(http.ErrAbortHandler)
	}
	found, p := e.scan(body, r.Header.Get("Content-Type"))
	if p != nil {
		return nil, nil, p
	}
	model := s.modelOf(e, found.Model)
	switch {
	case model == nil:
		return nil, nil, unknownModelOf(e, found.Model)
	case key != nil && !key.Allows(model.ID):
		return nil, nil, &problem{status: http.StatusForbidden, code: "model_not_allowed", kind: "permission_error", param: "model",
			message: "This API key may not use this model. GET /v1/models lists those that it may."}
	}
	return &dispatch.Request{
		ID: id, Client: key.Name(), Group: model.Group, Input: found.input(h.calibration, body, model.Targets, s.LongThreshold), Surface: e.surface, Path: e.path,
		Header: requestHeader(r, e, id), Body: body, ModelStart: found.ModelStart, ModelEnd: found.ModelEnd, PlainModel: e.body == formBody,
		IdleTimeout: s.IdleTimeout, TotalTimeout: s.TotalTimeout, TraceParent: r.Header.Get("Traceparent"),
	}, &found, nil
}

// failed is what to tell a client that got no whole answer.
func (h *Handler) failed(ctx context.Context, y *relay, s *active, id string, err error) *problem {
	var failure *dispatch.FailedError
	isFailure := errors.As(err, &failure)
	if errors.Is(err, dispatch.ErrStopped) {
		return drainingProblem(0)
	}
	if !isFailure && (y.gone || ctx.Err() != nil) {
		panic(http.ErrAbortHandler) // nobody reads it; a plain return would send an empty 200
	}
	// A stop takes the providers away from those who wait, and from those whose body was still on its way.
	var none *broker.UnavailableError
	if p := h.draining(); p != nil && (errors.As(err, &none) || errors.Is(err, broker.ErrUnknownGroup)) {
		return p
	}
	p, known := problemOf(err, s.ReconnectInterval)
	if !known {
		h.log.Error("request failed by an unforeseen error", "request_id", id, "error", err)
	}
	if isFailure && failure.Stopped {
		p.message = "The server was shut down before the answer was complete."
	}
	if isFailure && !y.begun {
		y.setGrant(&failure.Grant)
	}
	return &p
}

// recovered turns a bug of ours into the contract's 500, or into a cut connection once a part of an answer was sent.
func (h *Handler) recovered(w http.ResponseWriter, as *dialect, id string, f *fate) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	h.log.Error("request handler panicked", "request_id", id, "panic", cause, "stack", string(debug.Stack()))
	f.refused = internalProblem.code
	if f.begun {
		panic(http.ErrAbortHandler)
	}
	internalProblem.write(w, as)
}
