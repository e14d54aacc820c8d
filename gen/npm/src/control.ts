// Package iop.control.v1: what an Edge does now and has done, with a read token.
export * from "./iop/control/v1/control_pb.js";
