// Package traces tells an OpenTelemetry collector how requests went: one span for each that reached admission, made when it has ended from
// what its Ending says. A request that runs costs nothing more for it, and one that no collector takes is not held up: spans wait in a
// bounded queue and are dropped where it is full.
//
// It owns the names of the span's attributes. It must not know how a request is carried; prompts, answers and keys are not in an Ending.
package traces
