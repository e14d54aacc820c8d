import { useQuery } from "@connectrpc/connect-query";
import { ControlService, type HistoryPoint } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { FleetService } from "../../../gen/ts/iop/fleet/v1/fleet_pb.js";
import { message } from "../api/calls.js";
import { millis } from "../format.js";

/** What was kept of the past. */
export interface Past {
  points: readonly HistoryPoint[];
  intervalMs: number;
  /** Why it is not known; empty where it is. */
  error: string;
}

const nothing: readonly HistoryPoint[] = [];

/** The last hour of an Edge. */
export function useEdgeHistory(enabled: boolean): Past {
  const query = useQuery(ControlService.method.getHistory, {}, { enabled, refetchInterval: 15_000 });
  return { points: query.data?.points ?? nothing, intervalMs: query.data?.intervalMs ?? 10_000, error: query.error ? message(query.error) : "" };
}

/** What a Control Plane has kept of one Edge, or of all together. */
export function useFleetHistory(enabled: boolean, edgeId: string): Past {
  const query = useQuery(FleetService.method.getFleetHistory, { edgeId }, { enabled, refetchInterval: 60_000 });
  return { points: query.data?.points ?? nothing, intervalMs: query.data?.intervalMs ?? 60_000, error: query.error ? message(query.error) : "" };
}

/** The points of the last so many milliseconds, and their times. */
export function lately(past: Past, now: number, window: number): { points: HistoryPoint[]; times: number[] } {
  const points = past.points.filter((p) => (millis(p.at) ?? 0) > now - window);
  return { points, times: points.map((p) => millis(p.at) ?? 0) };
}
