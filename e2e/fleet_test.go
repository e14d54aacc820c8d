package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	_ "github.com/iop-dev/iop/cmd/controlplaned" // what the binary is made of, as in rig_test.go
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
)

const fleetToken = "e2e-fleet-read-token"

// controlPlane is one Control Plane process over the rig's Edge.
type controlPlane struct {
	*process
	fleet func() *fleetv1.Fleet
}

func (r *rig) startControlPlane() controlPlane {
	r.t.Helper()
	dir := r.t.TempDir()
	token := filepath.Join(dir, "edge.token")
	require.NoError(r.t, os.WriteFile(token, []byte(readToken), 0o600))
	file := filepath.Join(dir, "controlplane.yaml")
	writeYAML(r.t, file, object{
		"controlplane": object{
			"listen": "127.0.0.1:0", "state_dir": filepath.Join(dir, "state"), "pull_interval_ms": 200, "pull_timeout_ms": 5000, "stale_after_ms": 3000,
			"read_tokens": []object{{"name": "test", "sha256": hash(fleetToken)}},
		},
		"edges": []object{{"id": "e2e", "url": r.url, "token_file": token}},
	})
	p := startProcess(r.t, "control plane", "controlplane", "-c", file)
	client := fleetv1connect.NewFleetServiceClient(r.client, "http://"+p.await(r.t, "listening", "address"))
	return controlPlane{p, func() *fleetv1.Fleet {
		r.t.Helper()
		ctx, call := connect.NewClientContext(r.t.Context())
		call.RequestHeader().Set("Authorization", "Bearer "+fleetToken)
		res, err := client.GetFleet(ctx, &fleetv1.GetFleetRequest{})
		require.NoError(r.t, err)
		return res.GetFleet()
	}}
}

// status is what `iop status -o json` prints.
func (r *rig) status() *controlv1.EdgeNodeSnapshot {
	r.t.Helper()
	command := exec.Command(binary, "status", "-o", "json", "--edge", r.url)
	command.Env = append(os.Environ(), "IOP_READ_TOKEN="+readToken)
	out, err := command.Output()
	require.NoError(r.t, err)
	require.True(r.t, json.Valid(out))
	s := &controlv1.EdgeNodeSnapshot{}
	require.NoError(r.t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(out, s))
	return s
}

// nodesOf is how a snapshot shows its nodes. On a busy machine one that is
// connected is late now and then.
func nodesOf(s *controlv1.EdgeNodeSnapshot) map[string]string {
	out := map[string]string{}
	for _, n := range s.GetNodes() {
		state := n.GetState()
		if state == "late" {
			state = "connected"
		}
		out[n.GetId()] = state + " " + n.GetProviders()[0].GetHealth()
	}
	return out
}

// The Edge's API, the command and the fleet say the same of a node that has gone
// and of one that is back, one pull after it happened.
func TestCase_J12_AnOfflineNodeIsOfflineEverywhere(t *testing.T) {
	simulator := object{"id": "p", "type": "simulator", "capacity": 2}
	r := start(t, edgeFile(
		[]object{nodeConfig("n1", simulator), nodeConfig("n2", simulator)}, []object{model("m", "n1/p=t", "n2/p=t")},
	), "n1", "n2")
	c := r.startControlPlane()

	agree := func(want map[string]string, connected uint32, slots uint64) {
		t.Helper()
		r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return maps.Equal(nodesOf(s), want) }, "API: %v", want)
		require.Eventually(t, func() bool { return maps.Equal(nodesOf(r.status()), want) }, 20*time.Second, 20*time.Millisecond, "iop status: %v", want)
		require.Eventually(t, func() bool {
			f := c.fleet()
			return f.GetEdges()[0].GetState() == "live" && maps.Equal(nodesOf(f.GetEdges()[0].GetSnapshot()), want) &&
				f.GetTotals().GetNodesConnected() == connected && f.GetTotals().GetSlots() == slots && f.GetTotals().GetNodes() == 2
		}, 20*time.Second, 20*time.Millisecond, "fleet: %v", want)
	}
	both := map[string]string{"n1": "connected healthy", "n2": "connected healthy"}
	agree(both, 2, 4)
	r.nodes["n2"].kill()
	agree(map[string]string{"n1": "connected healthy", "n2": "offline offline"}, 1, 2)
	r.startNode("n2")
	agree(both, 2, 4)

	// An Edge that has gone is shown as it was, with its age, and is in no sum.
	r.edge.kill()
	require.Eventually(t, func() bool { return c.fleet().GetEdges()[0].GetState() == "unreachable" }, 20*time.Second, 20*time.Millisecond)
	f := c.fleet()
	require.Equal(t, both, nodesOf(f.GetEdges()[0].GetSnapshot()))
	require.Greater(t, f.GetEdges()[0].GetAgeMs(), uint64(3000))
	require.NotEmpty(t, f.GetEdges()[0].GetLastError())
	require.Zero(t, f.GetTotals().GetSlots())
	require.EqualValues(t, 1, f.GetTotals().GetEdges())
	require.Zero(t, f.GetTotals().GetEdgesLive())

	asked := time.Now()
	require.Zero(t, c.stop(t))
	require.Less(t, time.Since(asked), 10*time.Second)
	require.NotContains(t, c.log(), fleetToken)
}
