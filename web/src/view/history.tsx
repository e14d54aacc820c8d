import type { HistoryPoint } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { count, millis, num, sum } from "../format.js";
import type { Past } from "./historydata.js";
import { Plot, showDuration } from "./plot.js";

/** Plots of what was kept. */
export function HistoryPage({ history }: { history: Past }) {
  const { points, intervalMs } = history;
  const times = points.map((p) => millis(p.at) ?? 0);
  const of = (value: (p: HistoryPoint) => number | undefined) => points.map(value);
  const perMinute = 60_000 / Math.max(1, intervalMs);
  const ended = (p: HistoryPoint, good: boolean) =>
    sum(Object.entries(p.outcomes).flatMap(([outcome, n]) => ((outcome === "completed") === good ? [n] : []))) * perMinute;
  return (
    <div className="page plots">
      {history.error === "" ? null : (
        <p role="alert" className="bad-text">
          {history.error}
        </p>
      )}
      {points.length === 0 ? <p className="quiet">There is no history yet: the first point comes within a minute.</p> : null}
      <Plot
        title="Queue"
        id="queue"
        unit="requests waiting"
        times={times}
        show={count}
        series={[{ name: "waiting", look: "a", values: of((p) => p.queued) }]}
      />
      <Plot
        title="In flight"
        id="in-flight"
        unit="slots"
        times={times}
        show={count}
        series={[
          { name: "slots", look: "c", values: of((p) => p.slots) },
          { name: "busy", look: "a", values: of((p) => p.inFlight) },
          { name: "long", look: "b", values: of((p) => p.longInFlight) },
        ]}
      />
      <Plot
        title="Waits"
        id="waits"
        unit="of those that got a slot"
        times={times}
        show={showDuration}
        least={2000}
        series={[
          { name: "p50", look: "a", values: of((p) => (p.granted === 0 ? undefined : num(p.waitP50Ms))) },
          { name: "p95", look: "b", values: of((p) => (p.granted === 0 ? undefined : num(p.waitP95Ms))) },
        ]}
      />
      <Plot
        title="Throughput"
        id="throughput"
        unit="endings in a minute"
        times={times}
        show={(v) => (v === undefined ? "unknown" : String(Math.round(v)))}
        series={[
          { name: "completed", look: "a", values: of((p) => ended(p, true)) },
          { name: "other", look: "b", values: of((p) => ended(p, false)) },
        ]}
      />
      <Plot
        title="Output tokens"
        id="tokens"
        unit="in a minute, as far as providers told"
        times={times}
        show={count}
        series={[{ name: "tokens", look: "a", values: of((p) => (num(p.outputTokens) ?? 0) * perMinute) }]}
      />
    </div>
  );
}
