// Lists the models of an Edge, runs one request, and watches the Edge for two
// updates. IOP_EDGE is its address, IOP_KEY an API key, IOP_READ_TOKEN a read token;
// the first argument is the transport.
import { Code, ConnectError, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import * as node from "@connectrpc/connect-node";
import * as web from "@connectrpc/connect-web";
import { bearer } from "@iop-dev/client";
import { ControlService } from "@iop-dev/client/control";
import { FailureSchema, FinishReason, InferenceService, Role } from "@iop-dev/client/inference";

const baseUrl = process.env["IOP_EDGE"] ?? "http://127.0.0.1:8484";

const transports: Record<string, (interceptors: Interceptor[]) => Transport> = {
  connect: (interceptors) => node.createConnectTransport({ baseUrl, httpVersion: "2", interceptors }),
  "connect-json": (interceptors) => node.createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false, interceptors }),
  grpc: (interceptors) => node.createGrpcTransport({ baseUrl, interceptors }),
  "grpc-web": (interceptors) => node.createGrpcWebTransport({ baseUrl, httpVersion: "2", interceptors }),
  // What a page in a browser has, over fetch:
  "web-connect": (interceptors) => web.createConnectTransport({ baseUrl, interceptors }),
  "web-grpc-web": (interceptors) => web.createGrpcWebTransport({ baseUrl, interceptors }),
};

const name = process.argv[2] ?? "connect";
const transport = transports[name];
if (!transport) {
  throw new Error(`no transport ${name}; there are ${Object.keys(transports).join(", ")}`);
}

const inference = createClient(InferenceService, transport([bearer(process.env["IOP_KEY"] ?? "")]));
const { models } = await inference.listModels({});
console.log("models:", models.map((m) => `${m.id}${m.available ? "" : " (offline)"}`).join(", "));

const model = models[0]?.id;
if (!model) {
  throw new Error("the key may use no model");
}
let text = "";
for await (const { event } of inference.run({
  model,
  messages: [{ role: Role.USER, parts: [{ content: { case: "text", value: "Hello" } }] }],
  sampling: { maxOutputTokens: 6 },
})) {
  switch (event.case) {
    case "started":
      console.log("runs on:", `${event.value.nodeId}/${event.value.providerId}`);
      break;
    case "delta":
      text += event.value.text;
      break;
    case "completed":
      console.log("answer:", text, `(${FinishReason[event.value.finishReason]})`);
      break;
  }
}

try {
  for await (const _ of inference.run({ model: "no-such-model", messages: [{ role: Role.USER, parts: [{ content: { case: "text", value: "Hello" } }] }] })) {
    // Never reached: the call ends with the error.
  }
} catch (error) {
  const e = ConnectError.from(error);
  console.log("refused:", Code[e.code], e.findDetails(FailureSchema)[0]?.reason);
}

const control = createClient(ControlService, transport([bearer(process.env["IOP_READ_TOKEN"] ?? "")]));
const stop = new AbortController();
let updates = 0;
try {
  for await (const { update } of control.watchEdgeNodeSnapshot({}, { signal: stop.signal })) {
    if (update.case === "full") {
      // uint64 is bigint: sums are sums.
      const slots = update.value.nodes.flatMap((n) => n.providers).reduce((sum, p) => sum + p.configuredCapacity, 0);
      const granted = (update.value.counters?.granted ?? 0n) + 0n;
      console.log("watch:", update.value.edgeId, `${slots} slots,`, `${granted} granted`);
    }
    if (++updates === 2) {
      console.log("watch: 2 updates");
      stop.abort();
    }
  }
} catch (error) {
  if (!stop.signal.aborted) {
    throw error;
  }
}
