// Package iop.admin.v1: steering an Edge, with an admin token.
export * from "./iop/admin/v1/admin_pb.js";
