import { Code, ConnectError, type Interceptor, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { ControlService } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { FleetService } from "../../../gen/ts/iop/fleet/v1/fleet_pb.js";
import { getToken } from "./session.js";

const bearer: Interceptor = (next) => (request) => {
  const token = getToken();
  if (token !== "") {
    request.header.set("Authorization", `Bearer ${token}`);
  }
  return next(request);
};

/** Where the services are: beside the directory that the page is served from. */
export const origin = new URL("..", document.baseURI).href.replace(/\/$/, "");

export const transport = createConnectTransport({ baseUrl: origin, useBinaryFormat: true, interceptors: [bearer] });

export const control = createClient(ControlService, transport);
export const fleet = createClient(FleetService, transport);

/** Whose page this is. */
export type SiteKind = "edge" | "fleet";

/** Asks the server what it is. One that does not say is an Edge. */
export async function siteKind(): Promise<SiteKind> {
  try {
    const answer = await fetch("site.json", { headers: { Accept: "application/json" } });
    const site: unknown = await answer.json();
    return typeof site === "object" && site !== null && "kind" in site && site.kind === "fleet" ? "fleet" : "edge";
  } catch {
    return "edge";
  }
}

/** What went wrong, in a sentence to show. */
export function message(error: unknown): string {
  const e = ConnectError.from(error);
  return e.code === Code.Unavailable || e.code === Code.Unknown ? `The server cannot be reached: ${e.rawMessage}` : e.rawMessage;
}

/** Whether an error says that the token may not make the call. */
export function mayNot(error: unknown): boolean {
  const code = error === null || error === undefined ? undefined : ConnectError.from(error).code;
  return code === Code.Unauthenticated || code === Code.PermissionDenied || code === Code.Unimplemented || code === Code.NotFound;
}

/** Whether an Edge that was started without a file says that it has none to look at: the caller is one who may ask. */
export function hasNoFile(error: unknown): boolean {
  return error !== null && error !== undefined && ConnectError.from(error).code === Code.FailedPrecondition;
}
