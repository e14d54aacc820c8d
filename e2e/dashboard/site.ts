import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as base } from "@playwright/test";
import { Gateway } from "./gateway.js";
import { Process } from "./process.js";

export const tokens = { admin: "admin-3d81c2", reader: "reader-77a0f4", laptop: "client-laptop-51", ci: "client-ci-52", node: "node-secret-6b" };

const hash = (secret: string) => createHash("sha256").update(secret).digest("hex");

/** Input tokens from which on a request is long. */
const longFrom = 2000;

/** How one Edge is laid out. */
export interface Layout {
  id?: string;
  /** Slots of gpu-box/vllm, which serves qwen3-32b. */
  capacity?: number;
  /** More nodes, named so, each with one slot for the model "small". */
  more?: number;
  /** Without nas, the machine that is never there. */
  complete?: boolean;
}

/** What a client asked for. */
export interface Asked {
  model?: string;
  client?: "laptop" | "ci";
  id?: string;
  /** How many tokens the answer has: it takes twenty a second. */
  answer?: number;
  long?: boolean;
}

/** What came back. */
export interface Answer {
  status: number;
  body: string;
  /** Whether the answer is whole: the connection was not cut. */
  whole: boolean;
}

/** A request on its way. */
export class Call {
  readonly answer: Promise<Answer>;
  /** When it was sent, in milliseconds since 1970. */
  readonly sent: number;
  private readonly leave: () => void;

  constructor(address: string, asked: Asked) {
    const prompt = asked.long ? "word ".repeat(longFrom * 2) : "hello";
    const text = JSON.stringify({
      model: asked.model ?? "qwen3-32b", stream: true, max_tokens: asked.answer ?? 100_000, messages: [{ role: "user", content: prompt }],
    });
    this.sent = Date.now();
    const r = request(`http://${address}/v1/chat/completions`, {
      method: "POST", agent: false,
      headers: {
        "content-type": "application/json", authorization: `Bearer ${tokens[asked.client ?? "laptop"]}`,
        ...(asked.id === undefined ? {} : { "x-request-id": asked.id }),
      },
    });
    this.leave = () => r.destroy();
    this.answer = new Promise((resolve) => {
      r.on("error", () => resolve({ status: 0, body: "", whole: false }));
      r.on("response", (got) => {
        let body = "";
        got.setEncoding("utf8").on("data", (part: string) => (body += part));
        got.on("error", () => {}).on("close", () => resolve({ status: got.statusCode ?? 0, body, whole: got.complete }));
      });
      r.end(text);
    });
  }

  /** The client goes away. */
  abort(): void {
    this.leave();
  }
}

/** One Edge with its nodes, each a process, behind an address that stays. */
export class EdgeSite {
  readonly id: string;
  readonly dir: string;
  edge!: Process;
  private readonly gateway: Gateway;
  private readonly nodes = new Map<string, Process>();
  private readonly calls = new Set<Call>();
  private readonly layout: Layout;

  private constructor(layout: Layout, gateway: Gateway) {
    this.layout = layout;
    this.id = layout.id ?? "home-edge";
    this.gateway = gateway;
    this.dir = mkdtempSync(join(tmpdir(), "iop-dashboard-"));
    for (const [name, text] of [["edge.yaml", this.config()], ["node.token", `${tokens.node}\n`], ["reader.token", `${tokens.reader}\n`]] as const) {
      writeFileSync(join(this.dir, name), text, { mode: 0o600 });
    }
  }

  /** An Edge without its nodes. */
  static async open(layout: Layout = {}): Promise<EdgeSite> {
    const site = new EdgeSite(layout, await Gateway.open());
    await site.start();
    return site;
  }

  /** host:port of the Edge, for browsers, clients, nodes and Control Planes. */
  get address(): string {
    return this.gateway.address;
  }

  get dashboard(): string {
    return `http://${this.address}/dashboard/`;
  }

  /** How many watches are open. */
  get watches(): number {
    return this.gateway.watches;
  }

  /** The Edge's file. Only gpu-box and studio are ever started: nas, where it is not left out, is never seen. */
  private config(change = ""): string {
    const provider = (more: string) => `type: simulator, simulator: {tokens_per_second: 20}${more}`;
    const more = Array.from({ length: this.layout.more ?? 0 }, (_, i) => `box-${String(i + 1).padStart(2, "0")}`);
    return `edge:
  id: ${this.id}
  listen: 127.0.0.1:0
  state_dir: ${join(this.dir, "state")}
  stop_grace_ms: 1000
  heartbeat: {interval_ms: 2000, timeout_ms: 20000}
  admin_tokens: [{name: me, sha256: ${hash(tokens.admin)}}]
  read_tokens: [{name: watcher, sha256: ${hash(tokens.reader)}}]
long_context_threshold_tokens: ${longFrom}
provider_pool: {max_queue: 64, queue_timeout_ms: 600000}
openai:
  api_keys: [{name: laptop, sha256: ${hash(tokens.laptop)}}, {name: ci, sha256: ${hash(tokens.ci)}}]
models:
  - {id: qwen3-32b, context_window_tokens: 32768, providers: [{node: gpu-box, provider: vllm}]}
  - {id: gpt-oss-120b, providers: [{node: studio, provider: mlx}]}
${this.layout.complete ? "" : "  - {id: llama-70b, providers: [{node: nas, provider: ollama}]}\n"}${more.length === 0 ? "" : `  - {id: small, providers: [${more.map((n) => `{node: ${n}, provider: sim}`).join(", ")}]}\n`}nodes:
  - id: gpu-box
    token_sha256: ${hash(tokens.node)}
    providers:
      - {id: vllm, ${provider(`, capacity: ${this.layout.capacity ?? 3}, long_context_capacity: 1, total_context_tokens: 65536`)}}
  - id: studio
    token_sha256: ${hash(`${tokens.node}-studio`)}
    providers: [{id: mlx, ${provider(", capacity: 2")}}]
${this.layout.complete ? "" : `  - id: nas
    token_sha256: ${hash("nobody has this one")}
    providers: [{id: ollama, type: ollama, base_url: "http://127.0.0.1:11434"}]
`}${more.map((n) => `  - {id: ${n}, token_sha256: ${hash(`${tokens.node}-${n}`)}, providers: [{id: sim, ${provider("")}}]}\n`).join("")}${change}`;
  }

  /** Starts the Edge's process, the first or a further one. */
  async start(): Promise<void> {
    this.edge = new Process("edge", "-c", join(this.dir, "edge.yaml"));
    const entry = await this.edge.logged("listening");
    this.gateway.lead(String(entry["address"]));
  }

  /** Starts a node, or starts it again, and waits for its registration. */
  async join(node: "gpu-box" | "studio"): Promise<Process> {
    const secret = join(this.dir, `${node}.token`);
    writeFileSync(secret, node === "gpu-box" ? tokens.node : `${tokens.node}-${node}`, { mode: 0o600 });
    const file = join(this.dir, `${node}.yaml`);
    writeFileSync(file, `node: {id: ${node}, edge_url: "http://${this.address}", token_file: ${secret}}
reconnect: {interval_sec: 0.2, max_attempts: 0}
`);
    const p = new Process("node", "-c", file);
    this.nodes.set(node, p);
    await p.logged("connected to the edge");
    return p;
  }

  /** The process of a node. */
  node(id: "gpu-box" | "studio"): Process {
    return this.nodes.get(id)!;
  }

  /** Sends a request; the site's end ends it. */
  ask(asked: Asked = {}): Call {
    const call = new Call(this.address, asked);
    this.calls.add(call);
    return call;
  }

  /** Writes the file anew, with more lines at its end. */
  rewrite(change: string): void {
    writeFileSync(join(this.dir, "edge.yaml"), this.config(change), { mode: 0o600 });
  }

  /** The network keeps all connections and carries nothing. */
  stall(): void {
    this.gateway.stall();
  }

  /** It carries again. */
  flow(): void {
    this.gateway.flow();
  }

  async close(): Promise<void> {
    for (const call of this.calls) {
      call.abort();
    }
    await Promise.all([...this.nodes.values(), this.edge].map(async (p) => p.stop()));
    await this.gateway.close();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A Control Plane that reads some Edges. */
export class FleetSite {
  readonly process: Process;
  private readonly dir: string;
  dashboard = "";

  private constructor(edges: readonly EdgeSite[]) {
    this.dir = mkdtempSync(join(tmpdir(), "iop-fleet-"));
    const file = join(this.dir, "controlplane.yaml");
    writeFileSync(file, `controlplane:
  listen: 127.0.0.1:0
  state_dir: ${join(this.dir, "state")}
  pull_interval_ms: 500
  pull_timeout_ms: 1000
  stale_after_ms: 3000
  read_tokens: [{name: me, sha256: ${hash(tokens.reader)}}]
edges:
${edges.map((e) => `  - {id: ${e.id}, url: "http://${e.address}", token_file: ${join(e.dir, "reader.token")}}\n`).join("")}`);
    this.process = new Process("controlplane", "-c", file);
  }

  static async open(edges: readonly EdgeSite[]): Promise<FleetSite> {
    const fleet = new FleetSite(edges);
    const entry = await fleet.process.logged("listening");
    fleet.dashboard = `http://${String(entry["address"])}/dashboard/`;
    return fleet;
  }

  async close(): Promise<void> {
    await this.process.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Tests have an Edge with two nodes: five slots, one of them for long requests, and a machine that never came. */
export const test = base.extend<{ site: EdgeSite; layout: Layout }>({
  layout: [{}, { option: true }],
  site: async ({ layout }, use) => {
    const site = await EdgeSite.open(layout);
    try {
      await site.join("gpu-box");
      await site.join("studio");
      await use(site);
    } finally {
      await site.close();
    }
  },
});
