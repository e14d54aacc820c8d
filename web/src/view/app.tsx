import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Router } from "wouter";
import { useHashLocation } from "wouter/use-hash-location";
import { type SiteKind, control, fleet } from "../api/calls.js";
import { getToken, setToken } from "../api/session.js";
import { fleetStore } from "../live/fleet.js";
import { edgeStore } from "../live/store.js";
import { EdgePage } from "./edgepage.js";
import { FleetPage } from "./fleetpage.js";
import { useLive, useToken } from "./hooks.js";
import { Login } from "./login.js";

const edge = edgeStore((from, signal) => control.watchEdgeNodeSnapshot(from, { signal }));
const allEdges = fleetStore((signal) => fleet.watchFleet({}, { signal }));

/** The whole page. */
export function App({ kind }: { kind: SiteKind }) {
  return <Router hook={useHashLocation}>{kind === "fleet" ? <FleetApp /> : <EdgeApp />}</Router>;
}

function EdgeApp() {
  const token = useToken();
  const live = useLive(edge, token);
  const gate = useGate(live.refused, token);
  return gate ? <Login kind="edge" refused={gate.tried} /> : <EdgePage live={live} store={edge} />;
}

function FleetApp() {
  const token = useToken();
  const live = useLive(allEdges, token);
  const gate = useGate(live.refused, token);
  return gate ? <Login kind="fleet" refused={gate.tried} /> : <FleetPage live={live} store={allEdges} />;
}

/** Whether a token is to be asked for, and whether one has been refused. */
function useGate(refused: boolean, token: string): { tried: boolean } | undefined {
  const queries = useQueryClient();
  const [tried, setTried] = useState(false);
  useEffect(() => {
    // What another token was answered is nobody's business any more.
    queries.clear();
  }, [token, queries]);
  useEffect(() => {
    if (refused && getToken() !== "") {
      setTried(true);
      setToken("");
    }
  }, [refused]);
  return refused ? { tried } : undefined;
}
