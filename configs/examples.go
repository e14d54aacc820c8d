package configs

import _ "embed" // the examples

// EdgeExample is edge.yaml: every key of an Edge, annotated.
//
//go:embed edge.yaml
var EdgeExample string

// NodeExample is node.yaml: every key of a node, annotated.
//
//go:embed node.yaml
var NodeExample string

// ControlPlaneExample is controlplane.yaml: every key of a Control Plane, annotated.
//
//go:embed controlplane.yaml
var ControlPlaneExample string
