import { useMutation } from "@connectrpc/connect-query";
import { useState } from "react";
import { AdminService } from "../../../gen/ts/iop/admin/v1/admin_pb.js";
import type { EdgeNodeSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { message } from "../api/calls.js";
import { age, clock, duration, known, plural, since } from "../format.js";
import { Mark } from "./chrome.js";
import type { Role } from "./hooks.js";
import { ReadOnly } from "./machine.js";
import { Confirm } from "./modal.js";
import { overrideWords } from "./words.js";

/** What came of a check or a reload. */
interface Result {
  good: boolean;
  title: string;
  lines: string[];
}

/** The configuration in force, how it came about, and what is above it. */
export function ConfigPage({ snapshot, now, may }: { snapshot: EdgeNodeSnapshot; now: number; may: Role }) {
  const overrides = snapshot.nodes.flatMap((n) => [
    ...(n.override ? [{ about: n.id, words: overrideWords(n.override, now) }] : []),
    ...n.providers.flatMap((p) => (p.override ? [{ about: `${n.id}/${p.id}`, words: overrideWords(p.override, now) }] : [])),
  ]);
  return (
    <div className="page">
      <section className="panel">
        <h2>Configuration</h2>
        <dl>
          <dt>Revision in force</dt>
          <dd data-testid="config-revision">{snapshot.configRevision.toString()}</dd>
          <dt>Last refresh</dt>
          <dd>{snapshot.lastRefreshError === "" ? "accepted" : `refused: ${snapshot.lastRefreshError}`}</dd>
          <dt>Restart needed for</dt>
          <dd>{snapshot.needsRestart.length === 0 ? "nothing" : snapshot.needsRestart.join("; ")}</dd>
          <dt>Long from</dt>
          <dd>{snapshot.longContextThresholdTokens} input tokens on</dd>
          <dt>Heartbeat</dt>
          <dd>
            every {duration(snapshot.heartbeatIntervalMs)}, offline after {duration(snapshot.heartbeatTimeoutMs)}
          </dd>
          <dt>Version of the Edge</dt>
          <dd>{known(snapshot.softwareVersion)}</dd>
          <dt>Runs for</dt>
          <dd>{age(since(snapshot.startedAt, now))}</dd>
        </dl>
        {may === "admin" ? <Controls /> : <ReadOnly may={may} />}
      </section>
      <section className="panel">
        <h2>Overrides</h2>
        {snapshot.overridesNotDurable === "" ? null : (
          <p>
            <Mark kind="warn" /> They would not outlast a restart: {snapshot.overridesNotDurable}
          </p>
        )}
        {overrides.length === 0 ? <p className="quiet">None: everything is as the file says.</p> : null}
        <ul>
          {overrides.map((o) => (
            <li key={o.about}>
              <strong>{o.about}</strong> {o.words}
            </li>
          ))}
        </ul>
      </section>
      <section className="panel">
        <h2>Refreshes</h2>
        <ol className="refreshes" aria-label="Refreshes, the newest first">
          {snapshot.refreshes.map((r, i) => (
            <li key={`${r.at?.seconds}.${r.at?.nanos}.${i}`} data-testid="refresh" data-error={r.error === "" ? "no" : "yes"}>
              <p>
                <Mark kind={r.error === "" ? "ok" : "bad"} /> <span className="num">{clock(r.at)}</span> {r.source}
                {r.by === "" ? "" : ` by ${r.by}`}: {r.error === "" ? `revision ${r.configRevision}, ${plural(r.changeCount, "change")}` : "refused"}
              </p>
              {r.error === "" ? null : <pre tabIndex={0}>{r.error}</pre>}
              {r.changes.length === 0 ? null : (
                <ul className="lines">
                  {r.changes.map((line) => (
                    <li key={line}>
                      <code>{line}</code>
                    </li>
                  ))}
                  {r.changeCount > r.changes.length ? <li className="quiet">and {r.changeCount - r.changes.length} more</li> : null}
                </ul>
              )}
            </li>
          ))}
        </ol>
      </section>
    </div>
  );
}

function Controls() {
  const [asking, setAsking] = useState(false);
  const [result, setResult] = useState<Result | undefined>();
  const check = useMutation(AdminService.method.checkConfig);
  const reload = useMutation(AdminService.method.reloadConfig);
  const failed = (title: string) => (error: unknown) => setResult({ good: false, title, lines: message(error).split("\n") });
  const runCheck = () =>
    check.mutate(
      {},
      {
        onSuccess: (a) =>
          setResult({
            good: a.valid,
            title: a.valid ? (a.changes.length === 0 ? "The file is good and changes nothing." : "The file is good. A reload would change:") : "The file would be refused:",
            lines: [...a.errors, ...a.changes, ...a.warnings.map((w) => `warning: ${w}`), ...a.needsRestart.map((n) => `needs a restart: ${n}`)],
          }),
        onError: failed("The file could not be checked:"),
      },
    );
  const runReload = () =>
    reload.mutate(
      {},
      {
        onSuccess: (a) => {
          setAsking(false);
          setResult({
            good: true,
            title: `Revision ${a.configRevision} is in force${a.changes.length === 0 ? "; nothing has changed." : ". It changed:"}`,
            lines: [...a.changes, ...a.warnings.map((w) => `warning: ${w}`), ...a.needsRestart.map((n) => `needs a restart: ${n}`)],
          });
        },
        onError: (error) => {
          setAsking(false);
          failed("The file was refused; the one before stays in force:")(error);
        },
      },
    );
  return (
    <>
      <div className="actions">
        <button type="button" disabled={check.isPending} onClick={runCheck}>
          Check file
        </button>
        <button type="button" className="primary" onClick={() => setAsking(true)}>
          Reload
        </button>
      </div>
      <div role="status" data-testid="config-result">
        {result ? (
          <>
            <p>
              <Mark kind={result.good ? "ok" : "bad"} /> {result.title}
            </p>
            <ul className="lines">
              {result.lines.map((line, i) => (
                <li key={i}>
                  <code>{line}</code>
                </li>
              ))}
            </ul>
          </>
        ) : null}
      </div>
      {asking ? (
        <Confirm
          title="Reload the configuration?"
          consequence="The Edge reads its file again. A good one takes effect at once, without ending what runs; a bad one changes nothing."
          deed="Reload"
          pending={reload.isPending}
          error=""
          onConfirm={runReload}
          onKeep={() => setAsking(false)}
        />
      ) : null}
    </>
  );
}
