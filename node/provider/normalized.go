package provider

import (
	"net/http"
	"strconv"
	"strings"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/normalize"
)

// normalize puts a normalized run into the provider's own terms: from here on it
// is an exchange like any other, but for the frames of its answer. An error means
// that it cannot be put so; nothing has happened then.
func (x *exchange) normalize() error {
	form := x.instance.form
	body, err := form.Request(x.body, normalize.Options{Target: x.begin.GetTarget(), ContextWindow: x.begin.GetContextWindowTokens()})
	if err != nil {
		return err
	}
	x.body, x.out = body, &runFrames{out: x.out, answer: form.Answer()}
	return nil
}

// runFrames turns the frames of a provider's answer into frames of a run's events.
// What the provider says with its status is an event like any other: the head is
// always that of a run. It implements Writer; an error of it ends the exchange,
// as that of any Writer does.
type runFrames struct {
	out    Writer
	answer *normalize.Answer
}

// Frame implements Writer.
func (r *runFrames) Frame(f *Frame) error {
	if f.Failure != nil {
		return r.out.Frame(f)
	}
	var frame Frame
	if f.Head != nil {
		r.answer.Head(int(f.Head.GetStatus()), field(f.Head, "Content-Type"), seconds(field(f.Head, "Retry-After")))
		frame.Head = &runtimev1.ResponseHead{Status: http.StatusOK, Headers: []*runtimev1.Header{{Name: "Content-Type", Value: normalize.ContentType}}}
	}
	body, broken := r.answer.Next(f.Body, f.End)
	frame.Body, frame.End = body, f.End && broken == nil
	if frame.Head != nil || len(frame.Body) > 0 || frame.End {
		if err := r.out.Frame(&frame); err != nil {
			return err
		}
	}
	if broken != nil && f.End {
		return r.out.Frame(failed(disconnected, "%v", broken))
	}
	return broken
}

func field(head *runtimev1.ResponseHead, name string) string {
	for _, h := range head.GetHeaders() {
		if strings.EqualFold(h.GetName(), name) {
			return h.GetValue()
		}
	}
	return ""
}

// seconds reads a Retry-After between 1 and 60; 0 for any other.
func seconds(value string) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0
	}
	return min(n, 60)
}
