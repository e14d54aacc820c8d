package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// root is the top of the tree, seen from here.
var root = filepath.Join("..", "..")

// snippet is one block of commands of docs/api.md, and what its output contains.
type snippet struct {
	heading  string
	commands string
	expected []string
}

var block = regexp.MustCompile("(?ms)^## (.*?)$|^```sh\n(.*?)^```$")

// snippets reads docs/api.md.
func snippets(t *testing.T) (text string, found []snippet) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "docs", "api.md"))
	require.NoError(t, err)
	heading := ""
	for _, m := range block.FindAllStringSubmatch(string(raw), -1) {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		s := snippet{heading: heading}
		for line := range strings.Lines(m[2]) {
			if want, ok := strings.CutPrefix(line, "#> "); ok {
				s.expected = append(s.expected, strings.TrimSpace(want))
				continue
			}
			s.commands += line
		}
		found = append(found, s)
	}
	return string(raw), found
}

// Every method is described, and every one that an Edge serves is called.
func TestEveryMethodIsInTheDocument(t *testing.T) {
	text, found := snippets(t)
	var commands strings.Builder
	for _, s := range found {
		commands.WriteString(s.commands)
	}
	for _, file := range []protoreflect.FileDescriptor{
		inferencev1.File_iop_inference_v1_inference_proto, controlv1.File_iop_control_v1_control_proto,
		adminv1.File_iop_admin_v1_admin_proto, fleetv1.File_iop_fleet_v1_fleet_proto,
	} {
		services := file.Services()
		for i := range services.Len() {
			service := services.Get(i)
			assert.Contains(t, text, "`"+string(service.FullName())+"`")
			methods := service.Methods()
			for j := range methods.Len() {
				name := string(methods.Get(j).Name())
				assert.Contains(t, text, "| `"+name+"` |")
				if file != fleetv1.File_iop_fleet_v1_fleet_proto {
					assert.Contains(t, commands.String(), string(service.FullName())+"/"+name)
				}
			}
		}
	}
}
