import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { EdgeNodeSnapshotSchema, type RequestSnapshot, RequestSnapshotSchema } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { Tracker, place } from "./tracker.js";

const running = (seq: bigint, parts = 0n): RequestSnapshot =>
  create(RequestSnapshotSchema, { enqueueSeq: seq, node: "a", provider: "p", state: "streaming", answerParts: parts });

test("who runs keeps their place; who comes takes the first that is free", () => {
  const first = place(new Map(), [running(1n), running(2n), running(3n)]);
  expect(first.get("a/p")).toEqual([1n, 2n, 3n]);
  const second = place(first, [running(1n), running(3n)]);
  expect(second.get("a/p")).toEqual([1n, null, 3n]);
  expect(place(second, [running(1n), running(3n), running(4n), running(5n)]).get("a/p")).toEqual([1n, 4n, 3n, 5n]);
  expect(place(second, []).get("a/p")).toBeUndefined();
});

const at = (ms: number, parts: bigint, instanceId = "i") =>
  create(EdgeNodeSnapshotSchema, { at: timestampFromMs(ms), instanceId, requests: [running(1n, parts)] });

test("a rate is of the last seconds, by the Edge's clock", () => {
  const tracker = new Tracker();
  expect(tracker.observe(at(1000, 10n)).rates.get(1n)).toBeUndefined();
  expect(tracker.observe(at(2000, 30n)).rates.get(1n)).toBe(20);
  // A state between the tellings says nothing about progress.
  expect(tracker.observe(at(2200, 30n)).rates.get(1n)).toBe(20);
  for (const ms of [3000, 4000, 5000, 6000, 7000, 8000]) {
    tracker.observe(at(ms, 30n));
  }
  expect(tracker.observe(at(9000, 30n)).rates.get(1n)).toBe(0);
});

test("another process of the Edge begins anew", () => {
  const tracker = new Tracker();
  tracker.observe(at(1000, 10n));
  expect(tracker.observe(at(2000, 500n, "other")).rates.size).toBe(0);
});
