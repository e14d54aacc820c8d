package estimate

import "github.com/iop-dev/iop/edge/admission"

// Input is what a request's input comes to, and by what its context class was chosen.
type Input struct {
	// Estimate is what its bytes alone tell.
	Estimate Estimate
	// Tokens is the estimate with what providers have counted before.
	Tokens int
	// Threshold is the number of tokens from which on an input is long (L01); 0 = none is.
	Threshold int
}

// Class is the context class.
func (in Input) Class() admission.Class {
	if in.Threshold > 0 && in.Tokens >= in.Threshold {
		return admission.Long
	}
	return admission.Normal
}

// Input estimates a body that any of the served targets may get; every surface asks here.
func (c *Calibration) Input(body []byte, targets []string, threshold int) Input {
	e := Of(body)
	return Input{Estimate: e, Tokens: c.Tokens(targets, e), Threshold: threshold}
}
