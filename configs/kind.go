package configs

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Kind says whose configuration a file is.
type Kind string

// The kinds of file, by their telling top-level key.
const (
	KindEdge         Kind = "edge"
	KindNode         Kind = "node"
	KindControlPlane Kind = "controlplane"
)

// fileOf names the file of a kind for people.
var fileOf = map[Kind]string{
	KindEdge:         "an Edge's file (edge.yaml)",
	KindNode:         "a node's file (node.yaml)",
	KindControlPlane: "a Control Plane's file (controlplane.yaml)",
}

// KindOf tells from the top-level keys whose file this is. A file that cannot
// be read, or tells nothing, counts as an Edge's: reading it as such says what
// is wrong with it.
func KindOf(text []byte) Kind {
	doc, problem := parse("", text)
	if problem != nil || doc.root == nil {
		return KindEdge
	}
	if telling := tellingKey(doc.root); telling != nil {
		return Kind(telling.Value)
	}
	if doc.root.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(doc.root.Content); i += 2 {
			if doc.root.Content[i].Value == edgesKey {
				return KindControlPlane
			}
		}
	}
	return KindEdge
}

// edgesKey is what a Control Plane's file has where it leaves everything else out.
const edgesKey = "edges"

// tellingKey is the first top-level key that names a kind and holds keys.
func tellingKey(root *yaml.Node) *yaml.Node {
	if root.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if _, ok := fileOf[Kind(k.Value)]; ok && v.Kind == yaml.MappingNode {
			return k
		}
	}
	return nil
}

// ofAnother finds out that the file is of another kind than the message: one
// finding instead of one for each of its keys.
func (d *Document) ofAnother(md protoreflect.MessageDescriptor) *Problem {
	telling := tellingKey(d.root)
	if telling == nil || md.Fields().ByName(protoreflect.Name(telling.Value)) != nil {
		return nil
	}
	want := "another"
	for kind, name := range fileOf {
		if md.Fields().ByName(protoreflect.Name(kind)) != nil {
			want = name
		}
	}
	return &Problem{File: d.File, Line: telling.Line, Column: telling.Column, Path: telling.Value, OfKey: true,
		Message: fmt.Sprintf("found the key %q: this is %s; expected %s", telling.Value, fileOf[Kind(telling.Value)], want)}
}
