// Package iop.inference.v1: models and runs, with an API key.
export * from "./iop/inference/v1/inference_pb.js";
export * from "./iop/inference/v1/run_pb.js";
