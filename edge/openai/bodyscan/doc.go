// Package bodyscan reads what the Edge needs from a request body without decoding it: where the model's value stands, and whether a
// stream is asked for.
//
// It owns the strict check of the whole body as JSON (RFC 8259): what passes here means the same to every provider behind the Edge, so no
// second "model" key, in whatever spelling, can smuggle another model past the routing. It looks once at each byte and keeps nothing.
//
// Of a multipart/form-data body it owns the check of the frame (RFC 2046, RFC 7578) to the same end; what the parts hold passes unseen.
//
// It must not know models, HTTP or limits other than the nesting depth.
package bodyscan
