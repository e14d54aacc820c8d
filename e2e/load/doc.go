// Package load puts an Edge and a Node under many clients at once: streams at a
// model's pace with thousands that wait behind them, and clients that leave at
// every moment of a request. It looks for what a client would see (errors, short
// answers, late tokens) and for what is left behind (leases, goroutines, file
// descriptors, memory).
//
// Its tests run both in this process, small, and look at no clock; e2e/load/figures
// runs real processes and prints what it measures. It must not know how Edge and
// Node work inside; processes, provider and configuration are e2e/link's.
package load
