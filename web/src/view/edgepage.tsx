import { useRoute } from "wouter";
import type { WatchEdgeNodeSnapshotResponse } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { millis } from "../format.js";
import { type EdgeState, type Live, type LiveStore, shownTime } from "../live/store.js";
import { AlertLine } from "./alerts.js";
import { Chrome, Connecting } from "./chrome.js";
import { ConfigPage } from "./config.js";
import { EdgeScreen } from "./edgescreen.js";
import { HistoryPage } from "./history.js";
import { useEdgeHistory } from "./historydata.js";
import { useNow, useRole } from "./hooks.js";
import { ModelsPage } from "./models.js";
import { RequestRoute } from "./request.js";
import { EdgeSummary } from "./summary.js";

const pages = [
  { path: "/", name: "Now" },
  { path: "/history", name: "History" },
  { path: "/models", name: "Models" },
  { path: "/config", name: "Configuration" },
];

/** A single Edge, as it shows itself. */
export function EdgePage({ live, store }: { live: Live<EdgeState>; store: LiveStore<EdgeState, WatchEdgeNodeSnapshotResponse> }) {
  const now = useNow(500);
  const role = useRole(live.shown !== undefined);
  const history = useEdgeHistory(live.shown !== undefined);
  const [onHistory] = useRoute("/history");
  const [onModels] = useRoute("/models");
  const [onConfig] = useRoute("/config");

  if (!live.shown) {
    return <Connecting error={live.error} />;
  }
  const { snapshot, tracked } = live.shown;
  // Ages are told by the Edge's clock, so that the reader's may be wrong.
  const edgeNow = (millis(snapshot.at) ?? 0) + Math.max(0, shownTime(live, now) - live.shownAt);
  return (
    <Chrome
      title={snapshot.edgeId}
      live={live}
      now={now}
      revision={snapshot.revision}
      summary={<EdgeSummary snapshot={snapshot} now={edgeNow} />}
      alerts={<AlertLine snapshot={snapshot} now={edgeNow} />}
      pages={pages}
      onPause={() => (live.pausedAt === undefined ? store.pause() : store.resume())}
    >
      {onHistory ? (
        <HistoryPage history={history} />
      ) : onModels ? (
        <ModelsPage snapshot={snapshot} />
      ) : onConfig ? (
        <ConfigPage snapshot={snapshot} now={edgeNow} may={role} />
      ) : (
        <EdgeScreen snapshot={snapshot} tracked={tracked} now={edgeNow} may={role} history={history} base="" />
      )}
      <RequestRoute snapshot={snapshot} tracked={tracked} now={edgeNow} may={role} base="" />
    </Chrome>
  );
}
