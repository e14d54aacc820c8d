package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	_ "github.com/iop-dev/iop/gen/go/iop/config/v1"
	_ "github.com/iop-dev/iop/gen/go/iop/control/v1"
	_ "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	_ "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	_ "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// contracts are the documents that list every field, and of which packages.
var contracts = map[string][]protoreflect.FullName{
	"docs/contracts/control-plane-edge.md": {"iop.control.v1", "iop.admin.v1", "iop.fleet.v1"},
	"docs/contracts/edge-config.md":        {"iop.config.v1"},
	"docs/contracts/edge-node.md":          {"iop.runtime.v1"},
	"docs/contracts/inference.md":          {"iop.inference.v1"},
}

var (
	fieldList   = regexp.MustCompile(`(?s)(<!-- fields of ([a-z0-9.]+) -->\n).*?(<!-- end of fields -->)`)
	messageLine = regexp.MustCompile(`^(?:message|enum) (\w+) \{`)
	oneofLine   = regexp.MustCompile(`^oneof \w+ \{`)
	fieldLine   = regexp.MustCompile(`^(?:repeated |optional )?(?:map<[^>]+>|[\w.]+) (\w+) = \d+`)
)

// TestS10_ContractsListEveryField keeps the field lists of the contracts in step with the messages; make traceability rewrites them.
func TestS10_ContractsListEveryField(t *testing.T) {
	for name, packages := range contracts {
		file := filepath.Join(root, name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var listed []protoreflect.FullName
		want := fieldList.ReplaceAllStringFunc(string(text), func(section string) string {
			m := fieldList.FindStringSubmatch(section)
			pkg := protoreflect.FullName(m[2])
			listed = append(listed, pkg)
			return m[1] + fieldsOf(t, pkg) + m[3]
		})
		require.Equal(t, packages, listed, "%s lists the fields of other packages", name)
		if *rewrite {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
			continue
		}
		assert.True(t, want == string(text), "%s does not list the fields as the messages have them; run make traceability", name)
	}
}

// fieldsOf is a table for each message of a package, in the order of its files.
func fieldsOf(t *testing.T, pkg protoreflect.FullName) string {
	t.Helper()
	said := commentsOf(t, pkg)
	var out strings.Builder
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		messages := f.Messages()
		for i := range messages.Len() {
			m := messages.Get(i)
			if m.Fields().Len() == 0 {
				continue
			}
			fmt.Fprintf(&out, "\n**`%s`**\n\n| field | type | |\n| --- | --- | --- |\n", m.Name())
			for j := range m.Fields().Len() {
				field := m.Fields().Get(j)
				comment, known := said[string(m.Name())+"."+string(field.Name())]
				require.True(t, known, "%s has no comment that this test finds", field.FullName())
				fmt.Fprintf(&out, "| `%s` | %s | %s |\n", field.Name(), typeOf(field), strings.ReplaceAll(comment, "|", `\|`))
			}
		}
		return true
	})
	require.NotEmpty(t, out.String(), pkg)
	return out.String() + "\n"
}

func typeOf(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.IsMap():
		return "map"
	case f.Message() != nil:
		kind = string(f.Message().Name())
	case f.Enum() != nil:
		kind = string(f.Enum().Name())
	}
	if f.IsList() {
		kind = "list of " + kind
	}
	return kind
}

// commentsOf reads what stands above each field in the package's files: "Message.field".
func commentsOf(t *testing.T, pkg protoreflect.FullName) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "proto", filepath.FromSlash(strings.ReplaceAll(string(pkg), ".", "/")), "*.proto"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	said := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		message, comment := "", []string(nil)
		for line := range strings.SplitSeq(string(text), "\n") {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "//"):
				comment = append(comment, strings.TrimSpace(strings.TrimPrefix(line, "//")))
				continue
			case messageLine.MatchString(line):
				message = messageLine.FindStringSubmatch(line)[1]
			case oneofLine.MatchString(line):
			case fieldLine.MatchString(line) && len(comment) > 0:
				said[message+"."+fieldLine.FindStringSubmatch(line)[1]] = strings.Join(comment, " ")
			}
			comment = nil
		}
	}
	return said
}

func TestCommentsOfSeesEveryShape(t *testing.T) {
	said := commentsOf(t, "iop.control.v1")
	for name, want := range map[string]string{
		"HistoryPoint.outcomes":                  "Requests that ended in the interval, by outcome.",
		"Ending.input_tokens":                    "Prompt tokens that the provider counted.",
		"ExplainRequestRequest.request_id":       "By x-request-id; the newest of that id.",
		"WatchEdgeNodeSnapshotResponse.sequence": "Numbers the states that the Edge has sent to whoever watches; rises.",
	} {
		require.Equal(t, want, said[name], name)
	}
}
