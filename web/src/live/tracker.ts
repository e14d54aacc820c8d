import type { EdgeNodeSnapshot, RequestSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { millis, num } from "../format.js";

/** What is seen only by looking at one snapshot after another. */
export interface Tracked {
  /** By provider: who is in which place, so that nobody moves while they run; null = the place is free. */
  readonly places: ReadonlyMap<string, readonly (bigint | null)[]>;
  /** By request: events of the answer in one second, of the last seconds. */
  readonly rates: ReadonlyMap<bigint, number>;
}

/** Names a provider among those of all nodes. */
export function providerKey(node: string, provider: string): string {
  return `${node}/${provider}`;
}

/** How far back a rate looks, in milliseconds. */
const rateWindow = 5000;

interface Sample {
  at: number;
  parts: number;
}

/** Follows one Edge. */
export class Tracker {
  private places = new Map<string, (bigint | null)[]>();
  private samples = new Map<bigint, Sample[]>();
  private instance = "";

  /** Takes in the next snapshot of the Edge. */
  observe(snapshot: EdgeNodeSnapshot): Tracked {
    if (snapshot.instanceId !== this.instance) {
      this.instance = snapshot.instanceId;
      this.places = new Map();
      this.samples = new Map();
    }
    const running = snapshot.requests.filter((r) => r.node !== "");
    this.places = place(this.places, running);
    return { places: this.places, rates: this.measure(running, millis(snapshot.at) ?? 0) };
  }

  private measure(running: readonly RequestSnapshot[], at: number): Map<bigint, number> {
    const kept = new Map<bigint, Sample[]>();
    const rates = new Map<bigint, number>();
    for (const r of running) {
      const parts = num(r.answerParts) ?? 0;
      const all = this.samples.get(r.enqueueSeq) ?? [];
      const last = all.at(-1);
      // Progress is told once a second: a state between tells nothing.
      const grown = last === undefined || last.parts !== parts || at - last.at >= 2000;
      const recent = grown ? [...all, { at, parts }] : all;
      const samples = recent.filter((s, i) => at - s.at <= rateWindow || i >= recent.length - 2);
      kept.set(r.enqueueSeq, samples);
      const [first, newest] = [samples[0], samples.at(-1)];
      if (r.state === "streaming" && first && newest && newest.at > first.at && parts > 1) {
        rates.set(r.enqueueSeq, ((newest.parts - first.parts) * 1000) / (newest.at - first.at));
      }
    }
    this.samples = kept;
    return rates;
  }
}

/** Gives each running request of a provider a place, which it keeps; new ones take the first that is free. */
export function place(
  before: ReadonlyMap<string, readonly (bigint | null)[]>,
  running: readonly RequestSnapshot[],
): Map<string, (bigint | null)[]> {
  const byProvider = new Map<string, RequestSnapshot[]>();
  for (const r of running) {
    const key = providerKey(r.node, r.provider);
    byProvider.set(key, [...(byProvider.get(key) ?? []), r]);
  }
  const after = new Map<string, (bigint | null)[]>();
  for (const [key, requests] of byProvider) {
    const here = new Set(requests.map((r) => r.enqueueSeq));
    const places: (bigint | null)[] = (before.get(key) ?? []).map((seq) => (seq !== null && here.has(seq) ? seq : null));
    const placed = new Set(places);
    for (const r of requests) {
      if (!placed.has(r.enqueueSeq)) {
        const free = places.indexOf(null);
        places[free < 0 ? places.length : free] = r.enqueueSeq;
      }
    }
    while (places.length > 0 && places.at(-1) === null) {
      places.pop();
    }
    after.set(key, places);
  }
  return after;
}
