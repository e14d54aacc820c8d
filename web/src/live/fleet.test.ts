import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { EdgeViewSchema, WatchFleetResponseSchema } from "../../../gen/ts/iop/fleet/v1/fleet_pb.js";
import { applyFleet, snapshotAge } from "./fleet.js";

const track = () => ({ places: new Map(), rates: new Map() });
const update = (full: boolean, ...edges: [string, string][]) =>
  create(WatchFleetResponseSchema, { full, at: timestampFromMs(5000), edges: edges.map(([id, state]) => ({ id, state })) });

test("Edges keep their place; a full update sets the order", () => {
  const first = applyFleet(undefined, update(true, ["a", "live"], ["b", "live"]), track);
  const second = applyFleet(first, update(false, ["b", "stale"]), track);
  expect(second.edges.map((e) => [e.view.id, e.view.state])).toEqual([["a", "live"], ["b", "stale"]]);
  expect(second.edges[0]).toBe(first.edges[0]);
  expect(applyFleet(second, update(true, ["b", "live"]), track).edges.map((e) => e.view.id)).toEqual(["b"]);
});

test("what the Control Plane says of itself is as its last update has it", () => {
  const first = applyFleet(undefined, create(WatchFleetResponseSchema, { full: true, notices: ["the history is not kept"] }), track);
  expect(first.notices).toEqual(["the history is not kept"]);
  expect(applyFleet(first, update(false), track).notices).toEqual([]);
});

test("an age is told by the Control Plane's clock, and not invented", () => {
  expect(snapshotAge(create(EdgeViewSchema, { pulledAt: timestampFromMs(1000) }), 5000)).toBe(4000);
  expect(snapshotAge(create(EdgeViewSchema, { pulledAt: timestampFromMs(9000) }), 5000)).toBe(0);
  expect(snapshotAge(create(EdgeViewSchema, {}), 5000)).toBeUndefined();
});
