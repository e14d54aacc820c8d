import type { EdgeView, FleetTotals, WatchFleetResponse } from "../../../gen/ts/iop/fleet/v1/fleet_pb.js";
import { millis, num } from "../format.js";
import { LiveStore } from "./store.js";
import { type Tracked, Tracker } from "./tracker.js";

/** One Edge of the fleet. */
export interface FleetEdge {
  readonly view: EdgeView;
  readonly tracked: Tracked;
}

/** All Edges, in the order of the configuration. */
export interface FleetState {
  readonly edges: readonly FleetEdge[];
  readonly totals: FleetTotals | undefined;
  /** What the Control Plane says of itself. */
  readonly notices: readonly string[];
  /** The Control Plane's clock at this update, in milliseconds since 1970. */
  readonly at: number;
}

const nothingTracked: Tracked = { places: new Map(), rates: new Map() };

/** Brings a fleet up to date; what has not changed keeps its identity. */
export function applyFleet(before: FleetState | undefined, update: WatchFleetResponse, track: (view: EdgeView) => Tracked): FleetState {
  const changed = new Map(update.edges.map((view) => [view.id, { view, tracked: track(view) }]));
  const kept = update.full ? [] : (before?.edges ?? []);
  const edges = kept.map((edge) => {
    const newer = changed.get(edge.view.id);
    changed.delete(edge.view.id);
    return newer ?? edge;
  });
  return { edges: [...edges, ...changed.values()], totals: update.totals, notices: update.notices, at: millis(update.at) ?? 0 };
}

/** How old an Edge's snapshot is at a moment of the Control Plane's clock, in milliseconds. */
export function snapshotAge(view: EdgeView, at: number): number | undefined {
  const pulled = millis(view.pulledAt);
  return pulled === undefined ? (view.snapshot ? num(view.ageMs) : undefined) : Math.max(0, at - pulled);
}

/** Follows a fleet over the Control Plane's watch. */
export function fleetStore(open: (signal: AbortSignal) => AsyncIterable<WatchFleetResponse>): LiveStore<FleetState, WatchFleetResponse> {
  const trackers = new Map<string, Tracker>();
  const track = (view: EdgeView) => {
    if (!view.snapshot) {
      return nothingTracked;
    }
    const tracker = trackers.get(view.id) ?? new Tracker();
    trackers.set(view.id, tracker);
    return tracker.observe(view.snapshot);
  };
  let state: FleetState | undefined;
  return new LiveStore({
    open: (signal) => open(signal),
    forget: () => {
      state = undefined;
    },
    next: (update) => (state = applyFleet(state, update, track)),
  });
}
