"""Lists the models of an Edge, runs one request, and watches the Edge for two updates.

IOP_EDGE is its host:port, IOP_KEY an API key, IOP_READ_TOKEN a read token. IOP_CA names
the PEM file that the Edge's certificate is trusted by; without it the call is plain h2c.
"""

import os
import sys

import grpc

from iop.control.v1 import control_pb2, control_pb2_grpc
from iop.inference.v1 import inference_pb2, inference_pb2_grpc, run_pb2

SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse{status: SERVING}


def dial():
    """A channel to the Edge. gRPC reconnects it by itself."""
    target = os.environ.get("IOP_EDGE", "127.0.0.1:8484")
    # The largest message of the typed APIs is 4 MiB, which is gRPC's own limit too.
    options = [("grpc.keepalive_time_ms", 30_000)]
    ca = os.environ.get("IOP_CA")
    if not ca:
        return grpc.insecure_channel(target, options)
    with open(ca, "rb") as f:
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(f.read()), options)


def bearer(variable):
    """The metadata of a call that needs the credential of an environment variable."""
    return [("authorization", "Bearer " + os.environ.get(variable, ""))]


def healthy(channel):
    """gRPC's health protocol; open to everybody. grpcio-health-checking has the messages."""
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    return check(b"", timeout=10) == SERVING


def run(stub, model):
    """Prints the answer to one request, piece by piece."""
    request = run_pb2.RunRequest(
        model=model,
        messages=[run_pb2.Message(role=run_pb2.ROLE_USER, parts=[run_pb2.Part(text="Hello")])],
        sampling=run_pb2.Sampling(max_output_tokens=6),
    )
    text = ""
    for response in stub.Run(request, metadata=bearer("IOP_KEY")):
        event = response.WhichOneof("event")
        if event == "started":
            print(f"runs on: {response.started.node_id}/{response.started.provider_id}")
        elif event == "delta":
            text += response.delta.text
        elif event == "completed":
            reason = run_pb2.FinishReason.Name(response.completed.finish_reason)
            print(f"answer: {text} ({reason})")


def main():
    with dial() as channel:
        print("healthy:", healthy(channel))

        inference = inference_pb2_grpc.InferenceServiceStub(channel)
        models = inference.ListModels(inference_pb2.ListModelsRequest(), metadata=bearer("IOP_KEY"), timeout=10).models
        print("models:", ", ".join(m.id for m in models))
        run(inference, models[0].id)

        try:
            run(inference, "no-such-model")
        except grpc.RpcError as e:
            print("refused:", e.code().name, e.details())

        control = control_pb2_grpc.ControlServiceStub(channel)
        watch = control.WatchEdgeNodeSnapshot(control_pb2.WatchEdgeNodeSnapshotRequest(), metadata=bearer("IOP_READ_TOKEN"))
        for updates, response in enumerate(watch, 1):
            if response.HasField("full"):
                edge = response.full
                slots = sum(p.configured_capacity for n in edge.nodes for p in n.providers)
                print(f"watch: {edge.edge_id} {slots} slots, {edge.counters.granted + 0} granted")
            if updates == 2:
                print("watch: 2 updates")
                break
        watch.cancel()


if __name__ == "__main__":
    sys.exit(main())
