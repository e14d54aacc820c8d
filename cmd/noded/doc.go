// Package noded puts a Node together and runs it: configuration, providers,
// session and supervisor.
//
// It owns what belongs to the process: the instance id, how the Edge's
// certificate is checked, and the order of a stop. It decides nothing about
// requests, and must not know an Edge other than by the wire.
package noded
