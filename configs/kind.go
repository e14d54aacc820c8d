package configs

import "go.yaml.in/yaml/v3"

// Kind says whose configuration a file is.
type Kind string

// The kinds of file, by their telling top-level key.
const (
	KindEdge         Kind = "edge"
	KindNode         Kind = "node"
	KindControlPlane Kind = "controlplane"
)

// KindOf tells from the top-level keys whose file this is. A file that cannot
// be read, or tells nothing, counts as an Edge's: reading it as such says what
// is wrong with it.
func KindOf(text []byte) Kind {
	doc, problem := parse("", text)
	if problem != nil || doc.root == nil || doc.root.Kind != yaml.MappingNode {
		return KindEdge
	}
	for i := 0; i < len(doc.root.Content); i += 2 {
		switch k := Kind(doc.root.Content[i].Value); k {
		case KindEdge, KindNode, KindControlPlane:
			return k
		}
	}
	return KindEdge
}
