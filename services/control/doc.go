// Package control serves iop.control.v1: one consistent cut of an Edge's state,
// its changes as they come, the decision record of a request and the last hour,
// for the Control Plane, the dashboard and status commands.
//
// It owns how a cut is put into words and what watchers are sent. It only reads;
// snapshots never decide admission, and no caller, however slow, holds the Edge up.
package control
