import type { EdgeNodeSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { age, millis, num } from "../format.js";

/** The slots there are: of providers that take work, and those still held on the ones that do not. */
export function slotsOf(snapshot: EdgeNodeSnapshot): number {
  let slots = 0;
  for (const node of snapshot.nodes) {
    for (const p of node.providers) {
      slots += Math.max(p.status === "unavailable" ? 0 : p.effectiveCapacity, p.inFlight);
    }
  }
  return slots;
}

/** The longest wait of those who wait, in milliseconds; undefined where nobody does. */
export function oldestWait(snapshot: EdgeNodeSnapshot, now: number): number | undefined {
  return snapshot.queueTotal === 0 ? undefined : (num(snapshot.oldestWaitMs) ?? 0) + Math.max(0, now - (millis(snapshot.at) ?? now));
}

/** Busy, waiting, oldest: the sums that are always in sight. */
export function Summary({ busy, slots, waiting, oldest }: { busy: number; slots: number; waiting: number; oldest: number | undefined }) {
  return (
    <p className="summary" data-testid="summary">
      <span>
        <b data-testid="busy">
          {busy}/{slots}
        </b>
        <span className="wide-only"> slots</span> busy
      </span>{" "}
      <span aria-hidden="true">·</span>{" "}
      <span>
        <b data-testid="waiting">{waiting}</b> wait<span className="wide-only">ing</span>
      </span>{" "}
      <span aria-hidden="true">·</span>{" "}
      <span>
        <span className="wide-only">oldest </span>
        <b data-testid="oldest">{oldest === undefined ? "–" : age(oldest)}</b>
      </span>
    </p>
  );
}

export function EdgeSummary({ snapshot, now }: { snapshot: EdgeNodeSnapshot; now: number }) {
  return <Summary busy={snapshot.inFlightTotal} slots={slotsOf(snapshot)} waiting={snapshot.queueTotal} oldest={oldestWait(snapshot, now)} />;
}
