import { useCallback, useMemo, useState } from "react";
import { useLocation } from "wouter";
import type { EdgeNodeSnapshot, Ending } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { origin } from "../api/calls.js";
import { age, duration, since } from "../format.js";
import type { Tracked } from "../live/tracker.js";
import { type Past, lately } from "./historydata.js";
import { type Role, useMedia } from "./hooks.js";
import { MachineDialog } from "./machine.js";
import { Sparkline, ceiling } from "./plot.js";
import { NextUp } from "./queue.js";
import { Machine } from "./slots.js";
import { slotsOf } from "./summary.js";
import { who } from "./words.js";

const quarterHour = 15 * 60_000;

/** The first screen of an Edge: slots, who is in them, who waits and why, what runs next. */
export function EdgeScreen({
  snapshot,
  tracked,
  now,
  may,
  history,
  base,
}: {
  snapshot: EdgeNodeSnapshot;
  tracked: Tracked;
  now: number;
  may: Role;
  history: Past;
  base: string;
}) {
  const [, navigate] = useLocation();
  const narrow = useMedia("(max-width: 760px)");
  const [managed, setManaged] = useState<string | undefined>();
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(new Set());
  const running = useMemo(() => new Map(snapshot.requests.filter((r) => r.node !== "").map((r) => [r.enqueueSeq, r])), [snapshot]);
  const open = useCallback((seq: bigint) => navigate(`${base}/request/${seq}`), [navigate, base]);
  const toggle = (id: string) => {
    const next = new Set(expanded);
    if (!next.delete(id)) {
      next.add(id);
    }
    setExpanded(next);
  };
  const node = snapshot.nodes.find((n) => n.id === managed);
  const next = <NextUp key="next" snapshot={snapshot} now={now} onOpen={open} />;
  const machines = (
    <section key="machines" className="machines" aria-labelledby="slots">
      <div className="section-head">
        <h2 id="slots">
          Slots <span className="quiet">■ normal ▬ long □ free</span>
        </h2>
      </div>
      {snapshot.nodes.some((n) => n.state !== "never") ? null : <FirstRun snapshot={snapshot} />}
      <ul aria-label="Machines">
        {snapshot.nodes.map((n) => (
          <Machine
            key={n.id}
            snapshot={snapshot}
            node={n}
            running={running}
            tracked={tracked}
            now={now}
            narrow={narrow}
            expanded={expanded.has(n.id)}
            onExpand={() => toggle(n.id)}
            onOpen={open}
            onManage={() => setManaged(n.id)}
          />
        ))}
      </ul>
    </section>
  );
  return (
    <div className="screen">
      {narrow ? [next, machines] : [machines, next]}
      <Lately snapshot={snapshot} now={now} history={history} onOpen={open} />
      {node ? <MachineDialog snapshot={snapshot} node={node} now={now} may={may} onClose={() => setManaged(undefined)} /> : null}
    </div>
  );
}

/** Before any machine has been seen. */
function FirstRun({ snapshot }: { snapshot: EdgeNodeSnapshot }) {
  const model = snapshot.models[0]?.id ?? "MODEL";
  const line = `curl ${origin}/v1/chat/completions -H 'Authorization: Bearer YOUR_KEY' -H 'Content-Type: application/json' -d '${JSON.stringify({ model, messages: [{ role: "user", content: "hello" }] })}'`;
  return (
    <div className="first-run" data-testid="first-run">
      <p>
        <strong>Waiting for the first machine …</strong> {snapshot.nodes.length === 0 ? "None is configured: name it under nodes in the Edge's file. " : ""}
        On the machine with the inference server run
      </p>
      <pre tabIndex={0}>iop node -c node.yaml</pre>
      <p>Then ask:</p>
      <pre tabIndex={0}>{line}</pre>
    </div>
  );
}

/** The last quarter of an hour, and what ended last. */
function Lately({ snapshot, now, history, onOpen }: { snapshot: EdgeNodeSnapshot; now: number; history: Past; onOpen(seq: bigint): void }) {
  const { points } = lately(history, now, quarterHour);
  const busy = [...points.map((p) => p.inFlight), snapshot.inFlightTotal];
  const waiting = [...points.map((p) => p.queued), snapshot.queueTotal];
  const slots = Math.max(slotsOf(snapshot), ...points.map((p) => p.slots), ...busy);
  return (
    <section className="lately" aria-labelledby="lately">
      <h2 id="lately" className="unseen">
        Lately
      </h2>
      <div className="sparklines">
        <span className="quiet">15 min</span>
        <span>
          busy <Sparkline name="Slots busy" series="busy" values={busy} top={slots} />
        </span>
        <span>
          waiting <Sparkline name="Waiting" series="waiting" values={waiting} top={ceiling(Math.max(...waiting))} />
        </span>
      </div>
      <div className="last">
        <h3>Last</h3>
        {snapshot.endings.length === 0 ? <p className="quiet">Nothing has ended yet.</p> : null}
        <ul aria-label="Last endings">
          {snapshot.endings.slice(0, 8).map((e) => (
            <EndingRow key={`${e.enqueueSeq} ${e.requestId} ${e.at?.seconds}.${e.at?.nanos}`} e={e} now={now} onOpen={onOpen} />
          ))}
        </ul>
      </div>
    </section>
  );
}

function EndingRow({ e, now, onOpen }: { e: Ending; now: number; onOpen(seq: bigint): void }) {
  const good = e.outcome === "completed";
  const words = (
    <>
      <span className={good ? "mark ok" : e.outcome === "cancelled" ? "mark off" : "mark bad"} aria-hidden="true">
        {good ? "✓" : "✗"}
      </span>{" "}
      <span className="who">{e.enqueueSeq === 0n && e.client === "" ? "someone" : who(e)}</span>{" "}
      <span>{good ? duration(e.runMs) : e.outcome.replaceAll("_", " ")}</span>
      {e.providerStatus >= 400 ? <span> provider {e.providerStatus}</span> : null}{" "}
      <span className="quiet">{age(since(e.at, now))} ago</span>
    </>
  );
  return (
    <li data-testid="ending" data-outcome={e.outcome} title={e.detail}>
      {e.enqueueSeq === 0n ? (
        <span className="ending">{words}</span>
      ) : (
        <button type="button" className="ending" onClick={() => onOpen(e.enqueueSeq)}>
          {words}
          <span className="unseen">. Explain</span>
        </button>
      )}
    </li>
  );
}
