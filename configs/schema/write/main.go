// Command write writes the JSON Schemas of configuration files. It takes a
// compiled proto module on stdin, since only that has the comments:
//
//	buf build proto -o -#format=binpb | go run ./configs/schema/write
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/iop-dev/iop/configs/schema"
)

// folder is where the schemas are, from the root of the module.
const folder = "configs/schema"

// files are the schemas and the messages of their files.
var files = map[string]protoreflect.FullName{
	"edge.schema.json":         "iop.config.v1.EdgeConfig",
	"node.schema.json":         "iop.config.v1.NodeConfig",
	"controlplane.schema.json": "iop.config.v1.ControlPlaneConfig",
}

func main() {
	if err := write(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "configs/schema/write:", err)
		os.Exit(1)
	}
}

func write(image io.Reader) error {
	text, err := io.ReadAll(image)
	if err != nil {
		return err
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(text, set); err != nil {
		return fmt.Errorf("read the compiled protos from stdin: %w", err)
	}
	registry, err := protodesc.NewFiles(set)
	if err != nil {
		return fmt.Errorf("link the compiled protos: %w", err)
	}
	for name, message := range files {
		d, err := registry.FindDescriptorByName(message)
		if err != nil {
			return fmt.Errorf("find %s: %w", message, err)
		}
		md, ok := d.(protoreflect.MessageDescriptor)
		if !ok {
			return errors.New(string(message) + " is no message")
		}
		out, err := schema.Of(md)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}
