package control

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// ErrGap says that changes do not follow the state that they are applied to.
var ErrGap = errors.New("control: an update is missing; watch again for the whole state")

// ShownEndings is how many endings a state has at most.
const ShownEndings = 32

// between is what leads from one state to a later one. The messages are shared
// with the later one.
func between(from, to *controlv1.EdgeNodeSnapshot) *controlv1.SnapshotChanges {
	c := &controlv1.SnapshotChanges{}
	before := map[string]*controlv1.NodeSnapshot{}
	for _, n := range from.GetNodes() {
		before[n.GetId()] = n
	}
	moved := len(from.GetNodes()) != len(to.GetNodes())
	for i, n := range to.GetNodes() {
		if !proto.Equal(before[n.GetId()], n) {
			c.Nodes = append(c.Nodes, n)
		}
		moved = moved || from.GetNodes()[i].GetId() != n.GetId()
	}
	if c.OrderChanged = moved; moved {
		for _, n := range to.GetNodes() {
			c.NodeOrder = append(c.NodeOrder, n.GetId())
		}
	}
	requests := map[uint64]*controlv1.RequestSnapshot{}
	for _, r := range from.GetRequests() {
		requests[r.GetEnqueueSeq()] = r
	}
	for _, r := range to.GetRequests() {
		if !proto.Equal(requests[r.GetEnqueueSeq()], r) {
			c.Requests = append(c.Requests, r)
		}
		delete(requests, r.GetEnqueueSeq())
	}
	for seq := range requests {
		c.Gone = append(c.Gone, seq)
	}
	slices.Sort(c.Gone)
	for _, e := range to.GetEndings() {
		if len(from.GetEndings()) > 0 && proto.Equal(from.GetEndings()[0], e) {
			break
		}
		c.Endings = append(c.Endings, e)
	}
	c.CatalogueChanged = !same(from.GetModels(), to.GetModels()) || !same(from.GetRefreshes(), to.GetRefreshes()) ||
		!same(from.GetEstimateScales(), to.GetEstimateScales())
	c.Rest = without(to, c.CatalogueChanged)
	return c
}

func same[M proto.Message](a, b []M) bool {
	return slices.EqualFunc(a, b, func(x, y M) bool { return proto.Equal(x, y) })
}

// without is the state without what changes tell of apart.
func without(s *controlv1.EdgeNodeSnapshot, catalogue bool) *controlv1.EdgeNodeSnapshot {
	rest := &controlv1.EdgeNodeSnapshot{}
	s.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch fd.Name() {
		case "nodes", "requests", "endings":
		case "models", "refreshes", "estimate_scales":
			if catalogue {
				rest.ProtoReflect().Set(fd, v)
			}
		default:
			rest.ProtoReflect().Set(fd, v)
		}
		return true
	})
	return rest
}

// differs reports whether changes say more than that time has passed.
func differs(from *controlv1.EdgeNodeSnapshot, c *controlv1.SnapshotChanges) bool {
	return len(c.GetNodes())+len(c.GetRequests())+len(c.GetGone())+len(c.GetEndings()) > 0 || c.GetOrderChanged() || c.GetCatalogueChanged() ||
		from.GetRevision() != c.GetRest().GetRevision() || from.GetConfigRevision() != c.GetRest().GetConfigRevision() ||
		from.GetLastRefreshError() != c.GetRest().GetLastRefreshError() || from.GetOverridesNotDurable() != c.GetRest().GetOverridesNotDurable() ||
		from.GetCredentialsProblem() != c.GetRest().GetCredentialsProblem()
}

// keepProgress takes the growth of answers back, where nothing else of the request
// has changed.
func keepProgress(from, to *controlv1.EdgeNodeSnapshot) {
	before := map[uint64]*controlv1.RequestSnapshot{}
	for _, r := range from.GetRequests() {
		before[r.GetEnqueueSeq()] = r
	}
	for _, r := range to.GetRequests() {
		if b := before[r.GetEnqueueSeq()]; b != nil && b.GetState() == r.GetState() {
			r.AnswerParts, r.AnswerBytes = b.GetAnswerParts(), b.GetAnswerBytes()
		}
	}
}

// Apply brings a state up to date; neither argument is changed. sequence is that
// of the state. ErrGap means that an update was missed.
func Apply(state *controlv1.EdgeNodeSnapshot, sequence uint64, c *controlv1.SnapshotChanges) (*controlv1.EdgeNodeSnapshot, error) {
	if c.GetFromSequence() != sequence {
		return nil, ErrGap
	}
	next := without(c.GetRest(), true)
	if !c.GetCatalogueChanged() {
		next.Models, next.Refreshes, next.EstimateScales = state.GetModels(), state.GetRefreshes(), state.GetEstimateScales()
	}
	nodes := map[string]*controlv1.NodeSnapshot{}
	for _, n := range append(slices.Clone(state.GetNodes()), c.GetNodes()...) {
		nodes[n.GetId()] = n
	}
	order := c.GetNodeOrder()
	if !c.GetOrderChanged() {
		for _, n := range state.GetNodes() {
			order = append(order, n.GetId())
		}
	}
	for _, id := range order {
		if n := nodes[id]; n != nil {
			next.Nodes = append(next.Nodes, n)
		}
	}
	requests := map[uint64]*controlv1.RequestSnapshot{}
	for _, r := range append(slices.Clone(state.GetRequests()), c.GetRequests()...) {
		requests[r.GetEnqueueSeq()] = r
	}
	for _, seq := range c.GetGone() {
		delete(requests, seq)
	}
	for _, r := range requests {
		next.Requests = append(next.Requests, r)
	}
	slices.SortFunc(next.Requests, func(a, b *controlv1.RequestSnapshot) int {
		return int(int64(a.GetEnqueueSeq()) - int64(b.GetEnqueueSeq())) //nolint:gosec // far below 2^63
	})
	endings := append(slices.Clone(c.GetEndings()), state.GetEndings()...)
	next.Endings = endings[:min(len(endings), ShownEndings)]
	return next, nil
}
