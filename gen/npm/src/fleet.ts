// Package iop.fleet.v1: many Edges, as a Control Plane sees them.
export * from "./iop/fleet/v1/fleet_pb.js";
