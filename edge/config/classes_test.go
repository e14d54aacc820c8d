package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// Every field of edge.yaml says what a refresh does with it, and no class is of a
// field that is gone.
func TestS08_EveryFieldHasARefreshClass(t *testing.T) {
	fields := map[string]bool{}
	var walk func(m protoreflect.MessageDescriptor, path string)
	walk = func(m protoreflect.MessageDescriptor, path string) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			at := path + string(f.Name())
			if f.Message() == nil || f.IsList() {
				fields[at] = true
			}
			if f.Message() != nil {
				walk(f.Message(), at+".")
			}
		}
	}
	walk((&configv1.EdgeConfig{}).ProtoReflect().Descriptor(), "")
	require.Greater(t, len(fields), 60)
	for f := range fields {
		assert.NotZero(t, classes[f], "%s has no class: say in classes whether a refresh puts it into force (Live), names it for the next start (Restart), or refuses the file (Refused)", f)
	}
	for f := range classes {
		assert.True(t, fields[f], "%s has a class, but edge.yaml has no such field", f)
	}
}
