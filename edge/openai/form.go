package openai

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/openai/bodyscan"
)

// scanned is what was found in a request's body.
type scanned struct {
	bodyscan.Fields
	// form holds the sizes of a form's parts; nil for JSON.
	form *bodyscan.Form
}

// scan looks through a body of this endpoint.
func (e *endpoint) scan(body []byte, contentType string) (scanned, *problem) {
	var found scanned
	var err error
	if e.body == formBody {
		var boundary string
		if boundary, _, err = bodyscan.Boundary(contentType); err == nil {
			found.form = new(bodyscan.Form)
			*found.form, err = bodyscan.ScanForm(body, boundary)
			found.Model, found.ModelStart, found.ModelEnd = found.form.Model, found.form.ModelStart, found.form.ModelEnd
		}
	} else {
		found.Fields, err = bodyscan.Scan(body)
	}
	var bad *bodyscan.Error
	if errors.As(err, &bad) {
		return found, &problem{status: http.StatusBadRequest, code: "invalid_request", kind: invalidRequest, message: bad.Message, param: bad.Param}
	}
	return found, nil
}

// input estimates what was found for any of the targets.
func (f *scanned) input(c *estimate.Calibration, body []byte, targets []string, threshold int) estimate.Input {
	if f.form != nil {
		return estimate.OfForm(f.form.Text, f.form.Files, threshold)
	}
	return c.Input(body, targets, threshold)
}

// quotedModel is the model as the client named it, as a JSON string.
func (f *scanned) quotedModel(body []byte) []byte {
	if f.form != nil {
		return mustJSON(f.Model)
	}
	return body[f.ModelStart:f.ModelEnd]
}

// checkForm refuses what is no form by its type, and one of a page whose origin is not allowed: browsers send forms across origins
// without asking first.
func checkForm(r *http.Request, s *active) *problem {
	origin := r.Header.Get("Origin")
	if origin != "" && !slices.ContainsFunc(s.AllowedOrigins, func(o string) bool { return o == "*" || strings.EqualFold(o, origin) }) {
		return unsupportedMedia("A page may send a form only from an origin that openai.cors.allowed_origins names.")
	}
	_, isForm, err := bodyscan.Boundary(r.Header.Get("Content-Type"))
	var bad *bodyscan.Error
	switch {
	case !isForm:
		return unsupportedMedia("The request body must be a form: send Content-Type: multipart/form-data with its boundary.")
	case errors.As(err, &bad):
		return &problem{status: http.StatusBadRequest, code: "invalid_request", kind: invalidRequest, message: bad.Message}
	}
	return nil
}
