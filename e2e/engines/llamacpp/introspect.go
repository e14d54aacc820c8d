package llamacpp

import (
	_ "embed" // what the real server said of itself
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Recorded bodies, with verbs where the options come in.
var (
	//go:embed recorded/props.json
	recordedProps string
	//go:embed recorded/slot.json
	recordedSlot string
	//go:embed recorded/settings.json
	recordedSettings string
	//go:embed recorded/metrics.txt
	recordedMetrics string
)

var settings = strings.TrimSpace(recordedSettings)

// props is GET /props; total_slots is what `iop up` reads.
func (s *Server) props(x *exchange) {
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(strings.TrimSpace(recordedProps), s.options.Context, s.options.Slots, quote(s.options.Alias)))
}

// slotList is GET /slots; with fail_on_no_slot it is refused when all are busy.
func (s *Server) slotList(x *exchange) {
	busy, _ := s.slots.state()
	if x.req.URL.Query().Has("fail_on_no_slot") && !slices.Contains(busy, false) {
		x.reply(http.StatusServiceUnavailable, jsonType, `{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}`)
		return
	}
	var all []string
	for id, b := range busy {
		all = append(all, fmt.Sprintf(strings.TrimSpace(recordedSlot), id, s.options.Context, b))
	}
	x.reply(http.StatusOK, jsonType, "["+strings.Join(all, ",")+"]")
}

// metrics is GET /metrics, of which only what runs and what waits is true.
func (s *Server) metrics(x *exchange) {
	x.reply(http.StatusOK, "text/plain; version=0.0.4", fmt.Sprintf(recordedMetrics, s.Running(), s.Waiting()), "Process-Start-Time-Unix: 1684187668")
}

// models is GET /v1/models.
func (s *Server) models(x *exchange) {
	alias := quote(s.options.Alias)
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(`{"models":[{"name":%[1]s,"model":%[1]s,"modified_at":"","size":"","digest":"","type":"model",`+
		`"description":"","tags":[""],"capabilities":["completion"],"parameters":"","details":{"parent_model":"","format":"gguf","family":"",`+
		`"families":[""],"parameter_size":"","quantization_level":""}}],"object":"list","data":[{"id":%[1]s,"aliases":[%[1]s],"tags":[],`+
		`"object":"model","created":%[2]d,"owned_by":"llamacpp","meta":{"vocab_type":true,"n_vocab":1359,"n_ctx":%[3]d,"n_ctx_train":8192,`+
		`"n_embd":%[4]d,"n_params":1155328,"size":3703808,"ftype":"F16"}}]}`, alias, s.created, s.options.Context, dimensions))
}

// tokens is POST /tokenize.
func (s *Server) tokens(x *exchange, b body) error {
	var all []string
	for _, t := range tokenize(b.Content) {
		if b.WithPieces {
			all = append(all, fmt.Sprintf(`{"id":%d,"piece":%s}`, t.id, quote(t.piece)))
		} else {
			all = append(all, fmt.Sprint(t.id))
		}
	}
	x.reply(http.StatusOK, jsonType, `{"tokens":[`+strings.Join(all, ",")+`]}`)
	return nil
}
