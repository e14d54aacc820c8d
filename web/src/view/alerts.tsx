import type { EdgeNodeSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { age, plural, since, sum } from "../format.js";
import { Mark } from "./chrome.js";

/** One thing that an operator should know. */
export interface Alert {
  kind: "offline" | "late" | "refresh" | "restart" | "overrides" | "credentials" | "notice";
  severity: "bad" | "warn";
  /** What, without anything that ticks. */
  text: string;
  /** How long already, in milliseconds. */
  since?: number | undefined;
  /** The rest of it. */
  detail: string;
}

/** What is wrong with an Edge, the worst first; machines in their own order. */
export function alertsOf(snapshot: EdgeNodeSnapshot, now: number): Alert[] {
  const alerts: Alert[] = [];
  for (const node of snapshot.nodes) {
    const out = plural(sum(node.providers.map((p) => p.configuredCapacity)), "slot");
    if (node.state === "offline") {
      alerts.push({ kind: "offline", severity: "bad", text: `${node.id} offline`, since: since(node.offlineSince ?? node.lastSeen, now), detail: `${out} out` });
    } else if (node.state === "never") {
      alerts.push({ kind: "offline", severity: "bad", text: `${node.id} offline`, detail: `${out} out; not seen since this Edge started` });
    } else if (node.state === "late") {
      alerts.push({ kind: "late", severity: "warn", text: `${node.id} late`, since: since(node.lastSeen, now), detail: "silent for longer than it should be" });
    }
    if (node.notice !== "") {
      alerts.push({ kind: "notice", severity: "warn", text: node.id, detail: node.notice });
    }
  }
  if (snapshot.lastRefreshError !== "") {
    alerts.push({ kind: "refresh", severity: "bad", text: "Configuration refused, the one before is in force", detail: snapshot.lastRefreshError });
  }
  if (snapshot.needsRestart.length > 0) {
    alerts.push({ kind: "restart", severity: "warn", text: "Restart needed", detail: snapshot.needsRestart.join("; ") });
  }
  if (snapshot.overridesNotDurable !== "") {
    alerts.push({ kind: "overrides", severity: "warn", text: "Overrides would not outlast a restart", detail: snapshot.overridesNotDurable });
  }
  if (snapshot.credentialsProblem !== "") {
    alerts.push({ kind: "credentials", severity: "bad", text: "Kept credentials", detail: snapshot.credentialsProblem });
  }
  return alerts;
}

/** The alerts of an Edge. */
export function AlertLine({ snapshot, now }: { snapshot: EdgeNodeSnapshot; now: number }) {
  return <Alerts alerts={alertsOf(snapshot, now)} />;
}

/** What a Control Plane says of itself. */
export function Notices({ notices }: { notices: readonly string[] }) {
  return <Alerts alerts={notices.map((text) => ({ kind: "notice", severity: "warn", text, detail: "" }))} />;
}

/** Alerts have a line from the start, so that the first one moves nothing. Screen readers are told which there are, not how they age. */
function Alerts({ alerts }: { alerts: Alert[] }) {
  return (
    <>
      <p className="unseen" role="status">
        {alerts.map((a) => `${a.text}. `).join("")}
      </p>
      {alerts.length > 0 ? (
        <section className="alerts" aria-label="Alerts" tabIndex={0}>
          <ul>
          {alerts.map((a) => (
            <li key={`${a.kind} ${a.text}`} className={a.severity} data-testid="alert" data-kind={a.kind}>
              <Mark kind={a.severity} />
              <span>
                <strong>
                  {a.text}
                  {a.since === undefined ? "" : ` ${age(a.since)}`}
                </strong>{" "}
                {a.detail === "" ? "" : `— ${a.detail}`}
              </span>
            </li>
          ))}
          </ul>
        </section>
      ) : (
        <section className="alerts" aria-label="Alerts">
          <p className="banner quiet">
            <Mark kind="ok" /> No alerts.
          </p>
        </section>
      )}
    </>
  );
}
