// Package link puts real Edge and Node processes together with providers and a
// TCP proxy of its own, to show how the Edge–Node link takes deaths, silences and
// returns, and what it costs at rest. Its tests assert order and completion;
// e2e/link/figures measures the times and prints them.
//
// It owns the rig: processes, a provider, a proxy. It must not know how Edge and
// Node work inside: it sees their configuration, their snapshot, their logs and
// what /proc tells.
package link
