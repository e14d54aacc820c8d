import { expect } from "@playwright/test";
import { type EdgeSite, tokens } from "./site.js";

/** A request as the control API tells of it: what these tests read of it. */
export interface Request {
  enqueueSeq: string;
  requestId?: string;
  client?: string;
  state: string;
  reason?: string;
  sentence?: string;
  unblocker?: string;
}

/** A snapshot in Connect's JSON: what these tests read of it. */
export interface Snapshot {
  revision: string;
  configRevision: string;
  lastRefreshError?: string;
  queueTotal?: number;
  inFlightTotal?: number;
  requests?: Request[];
  nodes: { id: string; state: string; connected?: boolean; providers: { id: string; excludedReason?: string; idleBecause?: string; inFlight?: number }[] }[];
}

/** The state of an Edge by another client than the page. */
export async function snapshot(site: EdgeSite): Promise<Snapshot> {
  const got = await fetch(`http://${site.address}/iop.control.v1.ControlService/GetEdgeNodeSnapshot`, {
    method: "POST", headers: { "content-type": "application/json", authorization: `Bearer ${tokens.reader}` }, body: "{}",
  });
  if (!got.ok) {
    throw new Error(`the snapshot: ${got.status} ${await got.text()}`);
  }
  return ((await got.json()) as { snapshot: Snapshot }).snapshot;
}

/** The request of that x-request-id, once there is one that fits. */
export async function requestOf(site: EdgeSite, id: string, fits: (r: Request) => boolean = () => true): Promise<Request> {
  let found: Request | undefined;
  await expect(async () => {
    found = (await snapshot(site)).requests?.find((r) => r.requestId === id && fits(r));
    expect(found, `a request ${id} as it should be`).toBeDefined();
  }).toPass({ intervals: [50, 100, 200], timeout: 60_000 });
  return found!;
}
