package nodelink

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
)

// A request names the list that the node was sent last, by its number within the
// session, so that the node can tell whether it has overtaken that list.
func TestARequestNamesTheProviderListItWasChosenBy(t *testing.T) {
	e := newEdge(t)
	named := make(chan uint64, 1)
	note := func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		named <- begin.GetProviderRevision()
		return echo(ctx, begin, body, out)
	}
	first := e.connect("one", note)
	require.EqualValues(t, 1, await(e, first.providers.revisions))
	e.exchange("a")
	require.EqualValues(t, 1, await(e, named))

	e.svc.PushProviders() // nothing has changed, nothing is sent
	e.exchange("b")
	require.EqualValues(t, 1, await(e, named))

	e.setProviders(&runtimev1.ProviderSet{Providers: []*runtimev1.Provider{{Id: "vllm", Type: "vllm", Capacity: 2}}})
	e.svc.PushProviders()
	e.exchange("c")
	require.EqualValues(t, 2, await(e, named), "whether or not the list has arrived")
	require.EqualValues(t, 2, await(e, first.providers.revisions))

	// The same process again: another session, which counts from the beginning.
	again := e.connect("one", note)
	require.EqualValues(t, 1, await(e, again.providers.revisions))
	e.exchange("d")
	require.EqualValues(t, 1, await(e, named))
}
