package llamacpp

import (
	"errors"
	"fmt"
	"net/http"
)

// route answers a request. What is not there, a wrong method included, is a 404.
func (s *Server) route(x *exchange) {
	method, path := x.req.Method, x.req.URL.Path
	if method == http.MethodOptions {
		x.reply(http.StatusOK, "text/html", "")
		return
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if s.loading.Load() {
		x.reply(http.StatusServiceUnavailable, jsonType, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`)
		return
	}
	if path == "/health" || path == "/v1/health" {
		x.reply(http.StatusOK, jsonType, `{"status":"ok"}`)
		return
	}
	if !s.allowed(x.req) {
		x.reply(http.StatusUnauthorized, jsonType, `{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}`)
		return
	}
	if x.req.Header.Get("Content-Encoding") != "" {
		x.reply(http.StatusUnsupportedMediaType, "", "")
		return
	}
	handler := map[string]func(*exchange){
		"GET /props": s.props, "GET /slots": s.slotList, "GET /metrics": s.metrics,
		"GET /v1/models": s.models, "GET /models": s.models,
	}[method+" "+path]
	if handler != nil {
		handler(x)
		return
	}
	answer := map[string]func(*exchange, body) error{
		"/v1/chat/completions": s.chat, "/chat/completions": s.chat,
		"/v1/completions": s.completions, "/completion": s.native, "/completions": s.native,
		"/v1/responses": s.responses, "/v1/messages": s.messages, "/v1/messages/count_tokens": s.messageTokens,
		"/v1/embeddings": s.embeddings, "/v1/rerank": s.rerank, "/rerank": s.rerank, "/v1/reranking": s.rerank,
		"/infill": s.infill, "/tokenize": s.tokens,
	}[path]
	if method != http.MethodPost || answer == nil {
		x.reply(http.StatusNotFound, jsonType, `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`)
		return
	}
	if f := s.failing.Load(); f != nil && f.left.Add(-1) >= 0 {
		var more []string
		if f.retryAfter != "" {
			more = append(more, "Retry-After: "+f.retryAfter)
		}
		x.reply(f.status, jsonType, fmt.Sprintf(`{"error":{"code":%d,"message":"told to fail","type":"unavailable_error"}}`, f.status), more...)
		return
	}
	b, err := parse(x.body)
	if err == nil {
		err = answer(x, b)
	}
	var refused *refusal
	if errors.As(err, &refused) {
		x.reply(refused.status, jsonType, fmt.Sprintf(`{"error":{"code":%d,"message":%s,"type":%q%s}}`,
			refused.status, quote(refused.message), refused.kind, refused.more))
	}
}

func (s *Server) allowed(r *http.Request) bool {
	key := s.options.Key
	return key == "" || r.Header.Get("Authorization") == "Bearer "+key || r.Header.Get("X-Api-Key") == key
}
