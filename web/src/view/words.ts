import type { EdgeNodeSnapshot, NodeSnapshot, Override, ProviderSnapshot, RequestSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { age, since } from "../format.js";

/** Who asked: the name of the key, else the number. */
export function who(r: { client: string; enqueueSeq: bigint }): string {
  return r.client === "" ? `#${r.enqueueSeq}` : r.client;
}

/** How long a request has been where it is: waiting since it came, running since its slot. */
export function requestAge(r: RequestSnapshot, now: number): number | undefined {
  return since(r.grantedAt ?? r.enqueuedAt, now);
}

const typeNames: Record<string, string> = {
  openai: "OpenAI-compatible", vllm: "vLLM", llamacpp: "llama.cpp", ollama: "Ollama", lemonade: "Lemonade", lmstudio: "LM Studio",
  mlx: "MLX", simulator: "simulator (not a real server)",
};

/** What kind of server a provider is. */
export function typeName(type: string): string {
  return typeNames[type] ?? (type === "" ? "unknown type" : type);
}

/** The models that a provider serves. */
export function modelsOf(snapshot: EdgeNodeSnapshot, node: string, provider: string): string[] {
  return snapshot.models.filter((m) => m.candidates.some((c) => c.node === node && c.provider === provider)).map((m) => m.id);
}

/** What an override says, and since when. */
export function overrideWords(override: Override, now: number): string {
  const ms = since(override.since, now);
  return `${override.mode}${ms === undefined ? "" : ` since ${age(ms)}`}${override.by === "" ? "" : ` by ${override.by}`}`;
}

/** How a node stands, where that is not simply connected. */
export function nodeWords(node: NodeSnapshot, now: number): string {
  const seen = since(node.lastSeen, now);
  switch (node.state) {
    case "never":
      return "offline: not seen since the Edge started";
    case "offline": {
      const off = since(node.offlineSince ?? node.lastSeen, now);
      return `offline ${age(off)}${seen === undefined ? "" : `, last seen ${age(seen)} ago`}`;
    }
    case "late":
      return `late: silent for ${age(seen)}`;
    case "connected":
      if (node.override) {
        return overrideWords(node.override, now);
      }
      return node.draining ? "draining" : "";
    default:
      return node.state === "" ? (node.connected ? "" : "offline") : node.state;
  }
}

/** Why a provider takes no work, in a word and since when; empty where it does. */
export function excludedWords(node: NodeSnapshot, provider: ProviderSnapshot, now: number): string {
  if (provider.override && provider.override.mode !== "enabled") {
    return overrideWords(provider.override, now);
  }
  if (!node.connected || provider.excludedReason === "") {
    return "";
  }
  if (provider.excludedReason === "draining" && node.override) {
    return overrideWords(node.override, now);
  }
  return provider.excludedReason.replaceAll("_", " ");
}
