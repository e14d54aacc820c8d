// Package admin serves iop.admin.v1: what an operator may do to a running Edge.
//
// It owns how calls are translated. Who may call is decided before it is reached,
// and what a call does is the Edge's.
package admin
