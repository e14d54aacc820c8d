import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  type EdgeNodeSnapshot,
  EdgeNodeSnapshotSchema,
  EndingSchema,
  NodeSnapshotSchema,
  type RequestSnapshot,
  RequestSnapshotSchema,
  SnapshotChangesSchema,
} from "../../../gen/ts/iop/control/v1/control_pb.js";
import { Gap, apply, shownEndings } from "./apply.js";

const node = (id: string, connected: boolean) => create(NodeSnapshotSchema, { id, connected });
const request = (seq: bigint, state = "waiting"): RequestSnapshot => create(RequestSnapshotSchema, { enqueueSeq: seq, state });
const ending = (seq: bigint) => create(EndingSchema, { enqueueSeq: seq, outcome: "completed" });

function state(): EdgeNodeSnapshot {
  return create(EdgeNodeSnapshotSchema, {
    edgeId: "home",
    revision: 7n,
    queueTotal: 2,
    nodes: [node("a", true), node("b", true)],
    requests: [request(1n, "streaming"), request(2n), request(3n)],
    endings: [ending(9n)],
    models: [{ id: "m" }],
    refreshes: [{ source: "start" }],
    estimateScales: [{ target: "t" }],
  });
}

/** The vectors of services/control's Apply: what leads from one state to the next. */
describe("apply", () => {
  test("refuses changes that do not follow the state", () => {
    const changes = create(SnapshotChangesSchema, { fromSequence: 4n, rest: {} });
    expect(() => apply(state(), 3n, changes)).toThrow(Gap);
  });

  test("takes all numbers of the rest, those that are zero now included", () => {
    const before = state();
    const next = apply(before, 3n, create(SnapshotChangesSchema, { fromSequence: 3n, rest: { edgeId: "home", revision: 8n } }));
    expect(next.revision).toBe(8n);
    expect(next.queueTotal).toBe(0);
    expect(before.queueTotal).toBe(2);
  });

  test("replaces the nodes that have changed in their own place, and keeps the others as they are", () => {
    const before = state();
    const next = apply(before, 3n, create(SnapshotChangesSchema, { fromSequence: 3n, rest: {}, nodes: [node("a", false)] }));
    expect(next.nodes.map((n) => [n.id, n.connected])).toEqual([["a", false], ["b", true]]);
    expect(next.nodes[1]).toBe(before.nodes[1]);
    expect(before.nodes[0]?.connected).toBe(true);
  });

  test("follows a new order: nodes that came, went or moved", () => {
    const changes = create(SnapshotChangesSchema, {
      fromSequence: 3n, rest: {}, nodes: [node("c", true)], nodeOrder: ["c", "b"], orderChanged: true,
    });
    expect(apply(state(), 3n, changes).nodes.map((n) => n.id)).toEqual(["c", "b"]);
  });

  test("knows that all nodes have gone from none having changed", () => {
    const gone = create(SnapshotChangesSchema, { fromSequence: 3n, rest: {}, orderChanged: true });
    expect(apply(state(), 3n, gone).nodes).toEqual([]);
    const same = create(SnapshotChangesSchema, { fromSequence: 3n, rest: {} });
    expect(apply(state(), 3n, same).nodes).toHaveLength(2);
  });

  test("adds, replaces and removes requests, in the order of their numbers", () => {
    const changes = create(SnapshotChangesSchema, {
      fromSequence: 3n, rest: {}, requests: [request(10n), request(2n, "prefill")], gone: [1n],
    });
    expect(apply(state(), 3n, changes).requests.map((r) => [r.enqueueSeq, r.state])).toEqual([
      [2n, "prefill"], [3n, "waiting"], [10n, "waiting"],
    ]);
  });

  test("orders numbers beyond 2^53", () => {
    const far = 2n ** 60n;
    const changes = create(SnapshotChangesSchema, { fromSequence: 3n, rest: {}, requests: [request(far + 2n), request(far + 1n)] });
    expect(apply(state(), 3n, changes).requests.map((r) => r.enqueueSeq).slice(-2)).toEqual([far + 1n, far + 2n]);
  });

  test("puts new endings first and drops the oldest", () => {
    const before = state();
    before.endings = Array.from({ length: shownEndings }, (_, i) => ending(BigInt(100 - i)));
    const next = apply(before, 3n, create(SnapshotChangesSchema, { fromSequence: 3n, rest: {}, endings: [ending(102n), ending(101n)] }));
    expect(next.endings).toHaveLength(shownEndings);
    expect(next.endings.slice(0, 3).map((e) => e.enqueueSeq)).toEqual([102n, 101n, 100n]);
  });

  test("keeps the catalogue unless it has changed, and then takes an empty one too", () => {
    const kept = apply(state(), 3n, create(SnapshotChangesSchema, { fromSequence: 3n, rest: {} }));
    expect([kept.models.length, kept.refreshes.length, kept.estimateScales.length]).toEqual([1, 1, 1]);
    const emptied = apply(state(), 3n, create(SnapshotChangesSchema, { fromSequence: 3n, rest: {}, catalogueChanged: true }));
    expect([emptied.models.length, emptied.refreshes.length, emptied.estimateScales.length]).toEqual([0, 0, 0]);
  });
});
