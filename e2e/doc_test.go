// Package e2e puts the real parts together: bin/iop as Edge and Node processes,
// providers under the test's control, and plain HTTP clients. Each test is named
// after what it shows.
package e2e
