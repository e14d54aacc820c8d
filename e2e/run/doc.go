// Package run puts an Edge, a Node and a provider together in one process, over
// real connections, and asks for normalized runs (iop.inference.v1) as clients of
// every protocol do.
package run
