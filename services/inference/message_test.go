package inference

import (
	"testing"

	"buf.build/go/protovalidate"
	"github.com/stretchr/testify/require"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// An unknown name in JSON arrives as no role at all: the answer names those there are.
func TestAMessageWithoutARoleIsToldTheRoles(t *testing.T) {
	said := []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: "hi"}}}
	err := protovalidate.Validate(&inferencev1.Message{Parts: said})
	require.ErrorContains(t, err, "role: must be ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT or ROLE_TOOL")
	require.Error(t, protovalidate.Validate(&inferencev1.Message{Role: 9, Parts: said}))
	require.NoError(t, protovalidate.Validate(&inferencev1.Message{Role: inferencev1.Role_ROLE_USER, Parts: said}))
}
