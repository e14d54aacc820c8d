import { Router } from "wouter";
import { useHashLocation } from "wouter/use-hash-location";
import { type SiteKind, control, fleet } from "../api/calls.js";
import { fleetStore } from "../live/fleet.js";
import { edgeStore } from "../live/store.js";
import { EdgePage } from "./edgepage.js";
import { FleetPage } from "./fleetpage.js";
import { useLive } from "./hooks.js";
import { Login } from "./login.js";

const edge = edgeStore((from, signal) => control.watchEdgeNodeSnapshot(from, { signal }));
const allEdges = fleetStore((signal) => fleet.watchFleet({}, { signal }));

/** The whole page. */
export function App({ kind }: { kind: SiteKind }) {
  return <Router hook={useHashLocation}>{kind === "fleet" ? <FleetApp /> : <EdgeApp />}</Router>;
}

function EdgeApp() {
  const live = useLive(edge);
  return live.refused > 0 ? <Login kind="edge" refused={live.refused} onToken={() => edge.start()} /> : <EdgePage live={live} store={edge} />;
}

function FleetApp() {
  const live = useLive(allEdges);
  return live.refused > 0 ? <Login kind="fleet" refused={live.refused} onToken={() => allEdges.start()} /> : <FleetPage live={live} store={allEdges} />;
}
