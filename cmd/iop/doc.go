// Command iop is the one binary of IOP: the Edge, the Node, both in one process
// for a first try, and the commands around them.
//
// It owns flags, exit codes, signals and what people read on the terminal. What
// an Edge or a Node is made of is cmd/edged's and cmd/noded's; a command here is
// flags → configuration → Run(ctx). Logs go to stderr, data to stdout.
package main
