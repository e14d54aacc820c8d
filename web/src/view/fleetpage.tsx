import { Link, useRoute } from "wouter";
import type { WatchFleetResponse } from "../../../gen/ts/iop/fleet/v1/fleet_pb.js";
import { age, duration, known, millis, num, plural } from "../format.js";
import { type FleetEdge, type FleetState, snapshotAge } from "../live/fleet.js";
import { type Live, type LiveStore, shownTime } from "../live/store.js";
import { AlertLine, alertsOf, Notices } from "./alerts.js";
import { Chrome, Connecting, Mark } from "./chrome.js";
import { EdgeScreen } from "./edgescreen.js";
import { HistoryPage } from "./history.js";
import { useFleetHistory } from "./historydata.js";
import { useNow } from "./hooks.js";
import { RequestRoute } from "./request.js";
import { EdgeSummary, Summary, oldestWait, slotsOf } from "./summary.js";

const pages = [
  { path: "/", name: "Edges" },
  { path: "/history", name: "History" },
];

/** All Edges of a Control Plane, or one of them as it was last seen. */
export function FleetPage({ live, store }: { live: Live<FleetState>; store: LiveStore<FleetState, WatchFleetResponse> }) {
  const now = useNow(500);
  const [onHistory] = useRoute("/history");
  const [onEdge, at] = useRoute("/edge/:id/*?");
  const history = useFleetHistory(live.shown !== undefined && onHistory, "");

  const fleet = live.shown;
  if (!fleet) {
    return <Connecting error={live.error} />;
  }
  const elapsed = Math.max(0, shownTime(live, now) - live.shownAt);
  const fleetNow = fleet.at + elapsed;
  const pause = () => (live.pausedAt === undefined ? store.pause() : store.resume());
  const id = onEdge && at.id !== undefined ? decodeURIComponent(at.id) : undefined;
  const edge = fleet.edges.find((e) => e.view.id === id);
  if (edge) {
    return <OneEdge live={live} now={now} edge={edge} fleetNow={fleetNow} onPause={pause} />;
  }
  const totals = fleet.totals;
  return (
    <Chrome
      title="fleet"
      live={live}
      now={now}
      revision={undefined}
      pages={pages}
      onPause={pause}
      alerts={<Notices notices={fleet.notices} />}
      summary={
        <Summary
          busy={num(totals?.inFlight) ?? 0}
          slots={num(totals?.slots) ?? 0}
          waiting={num(totals?.queued) ?? 0}
          oldest={totals && num(totals.queued) !== 0 ? (num(totals.oldestWaitMs) ?? 0) + elapsed : undefined}
        />
      }
    >
      {onHistory ? (
        <HistoryPage history={history} />
      ) : (
        <div className="page">
          <section aria-labelledby="edges">
            <div className="section-head">
              <h2 id="edges">
                Edges{" "}
                <span className="quiet">
                  {totals ? `${totals.edgesLive} of ${totals.edges} live, ${totals.nodesConnected} of ${totals.nodes} machines connected` : ""}
                </span>
              </h2>
            </div>
            {id === undefined ? null : <p role="alert">There is no Edge {id} here.</p>}
            <ul className="edge-cards" aria-label="Edges">
              {fleet.edges.map((e) => (
                <EdgeCard key={e.view.id} edge={e} fleetNow={fleetNow} />
              ))}
            </ul>
            {fleet.edges.length === 0 ? <p className="quiet">No Edge is configured.</p> : null}
          </section>
        </div>
      )}
    </Chrome>
  );
}

const stateMark = { live: "ok", stale: "warn", unreachable: "bad", never: "off" } as const;

function markOf(state: string): "ok" | "warn" | "bad" | "off" {
  return stateMark[state as keyof typeof stateMark] ?? "off";
}

/** The time by the Edge's own clock that its ages are told by. */
function edgeTime({ view }: FleetEdge, fleetNow: number): number {
  const at = millis(view.snapshot?.at) ?? 0;
  // What is stale does not age by itself: it is shown as it was.
  return view.state === "live" ? at + (snapshotAge(view, fleetNow) ?? 0) : at;
}

function EdgeCard({ edge, fleetNow }: { edge: FleetEdge; fleetNow: number }) {
  const { view } = edge;
  const s = view.snapshot;
  const old = snapshotAge(view, fleetNow);
  const now = edgeTime(edge, fleetNow);
  const alerts = s ? alertsOf(s, now) : [];
  const oldest = s ? oldestWait(s, now) : undefined;
  return (
    <li className={`edge-card panel ${view.state}`} data-testid="edge-card" data-edge={view.id} data-state={view.state}>
      <h3>
        <Mark kind={markOf(view.state)} /> <Link href={`/edge/${encodeURIComponent(view.id)}`}>{view.id}</Link>{" "}
        <span className={`tag ${markOf(view.state)}`}>
          {known(view.state)}
          {old === undefined ? "" : ` ${age(old)}`}
        </span>
      </h3>
      {s ? (
        <>
          <p>
            <b>
              {s.inFlightTotal}/{slotsOf(s)}
            </b>{" "}
            busy · <b>{s.queueTotal}</b> waiting · oldest <b>{oldest === undefined ? "–" : age(oldest)}</b>
          </p>
          <p className="quiet">
            {s.nodes.filter((n) => n.connected).length} of {plural(s.nodes.length, "machine")} connected · version {known(s.softwareVersion)} · read in{" "}
            {duration(view.pullMs)}
          </p>
        </>
      ) : (
        <p className="quiet">Not read yet.</p>
      )}
      <ul className="lines">
        {view.lastError === "" ? null : (
          <li>
            <Mark kind="bad" /> {view.lastError} ({plural(view.failures, "time")} in a row)
          </li>
        )}
        {view.notices.map((n) => (
          <li key={n}>
            <Mark kind="warn" /> {n}
          </li>
        ))}
        {alerts.map((a) => (
          <li key={`${a.kind} ${a.text}`}>
            <Mark kind={a.severity} /> {a.text} — {a.detail}
          </li>
        ))}
      </ul>
    </li>
  );
}

/** One Edge of the fleet, to look at. */
function OneEdge({
  live,
  now,
  edge,
  fleetNow,
  onPause,
}: {
  live: Live<FleetState>;
  now: number;
  edge: FleetEdge;
  fleetNow: number;
  onPause(): void;
}) {
  const { view, tracked } = edge;
  const base = `/edge/${encodeURIComponent(view.id)}`;
  const [onHistory] = useRoute(`${base}/history`);
  const history = useFleetHistory(true, view.id);
  const edgeNow = edgeTime(edge, fleetNow);
  const s = view.snapshot;
  return (
    <Chrome
      title={view.id}
      live={live}
      now={now}
      revision={s?.revision}
      pages={[{ path: "/", name: "Edges" }, { path: base, name: "Now" }, { path: `${base}/history`, name: "History" }]}
      onPause={onPause}
      summary={s ? <EdgeSummary snapshot={s} now={edgeNow} /> : null}
      alerts={s ? <AlertLine snapshot={s} now={edgeNow} /> : null}
    >
      {view.state === "live" ? null : (
        <p className="banner bad" data-testid="edge-stale">
          <Mark kind={markOf(view.state)} /> <strong>{known(view.state)}:</strong>{" "}
          {s ? `what you see is ${age(snapshotAge(view, fleetNow))} old.` : "it has not been read yet."} {view.lastError}
        </p>
      )}
      {onHistory ? (
        <HistoryPage history={history} />
      ) : s ? (
        <div className={view.state === "live" ? undefined : "stale"}>
          <EdgeScreen snapshot={s} tracked={tracked} now={edgeNow} may="reader" history={history} base={base} />
          <RequestRoute snapshot={s} tracked={tracked} now={edgeNow} may="unknown" base={base} explains={false} />
        </div>
      ) : null}
    </Chrome>
  );
}
