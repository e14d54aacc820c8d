package openai

import (
	"encoding/json"
	"net/http"
)

// dialect is how the clients of an endpoint read errors.
type dialect struct {
	// body is an error as a whole answer, a JSON object.
	body func(problem) []byte
	// before and after enclose that object inside a stream that has begun.
	before, after string
	// idHeader is the field besides x-request-id in which these clients look for the request's id; "" = none.
	idHeader string
}

var (
	openAI    = &dialect{body: openAIBody, before: "data: ", after: "\n\n"}
	anthropic = &dialect{body: anthropicBody, before: "event: error\ndata: ", after: "\n\n", idHeader: "Request-Id"}
)

// messagesAPI is below which the messages API lies.
const messagesAPI = "/v1/messages/"

// appendInStream appends p as it stands in a stream.
func (d *dialect) appendInStream(dst []byte, p problem) []byte {
	dst = append(dst, d.before...)
	dst = append(dst, d.body(p)...)
	return append(dst, d.after...)
}

func openAIBody(p problem) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	e := struct {
		Error inner `json:"error"`
	}{inner{Message: p.message, Type: p.kind, Code: p.code}}
	if p.param != "" {
		e.Error.Param = &p.param
	}
	return mustJSON(e)
}

// anthropicBody is the envelope of the messages API. The code is an addition that its clients pass over.
func anthropicBody(p problem) []byte {
	type inner struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    string `json:"code"`
	}
	return mustJSON(struct {
		Type      string `json:"type"`
		Error     inner  `json:"error"`
		RequestID string `json:"request_id"`
	}{"error", inner{Type: anthropicType(p.status), Message: p.message, Code: p.code}, p.requestID})
}

// anthropicType is the messages API's word for a status of the contract's table.
func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return rateLimit
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return invalidRequest
}

// mustJSON is for structs of strings, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
