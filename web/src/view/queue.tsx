import { useRef, useState } from "react";
import type { EdgeNodeSnapshot, RequestSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { age, count, duration, plural, unknown } from "../format.js";
import { requestAge, who } from "./words.js";

/** Rows shown before "Show all". */
const firstRows = 8;

/** Those who wait, in the order in which they are looked at. */
export function waitersOf(snapshot: EdgeNodeSnapshot): RequestSnapshot[] {
  return snapshot.requests.filter((r) => r.state === "waiting");
}

/**
 * Who waits, why, for how long, and who is next. A row that has the focus stays
 * while it has it, even if its request has gone: what the reader holds does not
 * vanish under their hand.
 */
export function NextUp({ snapshot, now, onOpen }: { snapshot: EdgeNodeSnapshot; now: number; onOpen(seq: bigint): void }) {
  const [all, setAll] = useState(false);
  const [held, setHeld] = useState<{ request: RequestSnapshot; at: number } | undefined>();
  const list = useRef<HTMLOListElement>(null);
  const waiters = waitersOf(snapshot);
  const position = new Map(waiters.map((r, i) => [r.enqueueSeq, i + 1]));
  const rows = all ? waiters : waiters.slice(0, firstRows);
  const shown = held && !rows.some((r) => r.enqueueSeq === held.request.enqueueSeq) ? [...rows.slice(0, held.at), held.request, ...rows.slice(held.at)] : rows;
  return (
    <section className="next" aria-labelledby="next-up">
      <div className="section-head">
        <h2 id="next-up">
          Next up <span className="quiet">in the order of dispatch</span>
        </h2>
      </div>
      {shown.length === 0 ? <p className="quiet">Nobody waits.</p> : null}
      <ol aria-label="Next up" ref={list}>
        {shown.map((r, i) => (
          <Waiter
            key={r.enqueueSeq.toString()}
            r={r}
            position={position.get(r.enqueueSeq)}
            behind={position.get(r.behindSeq)}
            live={snapshot.requests.find((other) => other.enqueueSeq === r.enqueueSeq)}
            now={now}
            onOpen={onOpen}
            onFocus={() => setHeld({ request: r, at: i })}
            onBlur={() => setHeld(undefined)}
          />
        ))}
      </ol>
      {waiters.length > firstRows ? (
        <button type="button" className="small" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show the first only" : `Show all ${waiters.length}`}
        </button>
      ) : null}
      {snapshot.queueTotal > waiters.length ? <p className="quiet">{snapshot.queueTotal - waiters.length} more wait behind these.</p> : null}
      <QueueLine snapshot={snapshot} />
    </section>
  );
}

function Waiter({
  r,
  position,
  behind,
  live,
  now,
  onOpen,
  onFocus,
  onBlur,
}: {
  r: RequestSnapshot;
  position: number | undefined;
  behind: number | undefined;
  live: RequestSnapshot | undefined;
  now: number;
  onOpen(seq: bigint): void;
  onFocus(): void;
  onBlur(): void;
}) {
  const gone = live?.state !== "waiting";
  const reason = r.reason === "" ? "unknown" : r.reason;
  return (
    <li className={gone ? "waiter gone" : "waiter"} data-testid="waiter" data-seq={r.enqueueSeq.toString()} data-reason={r.reason}>
      <button type="button" onClick={() => onOpen(r.enqueueSeq)} onFocus={onFocus} onBlur={onBlur} title="Explain">
        <span className="position num">{gone ? "✓" : (position ?? "·")}</span>
        <span className="who">{who(r)}</span>
        <span className="model">{r.model}</span>
        {r.contextClass === "long" ? <span className="tag long">LONG {count(r.estimatedInputTokens)} tok</span> : null}
        <span className="num wait">{age(requestAge(r, now))}</span>
        {gone ? (
          <span className="why">{live ? `Has a slot of ${live.node}/${live.provider} now.` : "Has ended."}</span>
        ) : (
          <>
            <span className="why">
              <code>{reason}</code>
              {behind === undefined ? "" : ` (number ${behind} here)`} {r.sentence}
            </span>
            <span className="unblock">
              <span aria-hidden="true">→</span> {r.unblocker}
            </span>
          </>
        )}
      </button>
    </li>
  );
}

/** How full the queues are, and how long waits have been. */
function QueueLine({ snapshot }: { snapshot: EdgeNodeSnapshot }) {
  const scopes = snapshot.scopes.filter((s, i) => i === 0 || s.pending > 0);
  return (
    <div className="queue-line">
      <ul aria-label="Queues" data-testid="queue">
        {scopes.map((s) => (
          <li key={s.key}>
            <span className="num">
              {s.pending}/{s.maxQueue}
            </span>{" "}
            {s.key === "pool" ? "queue" : s.key}
            <meter min={0} max={Math.max(1, s.maxQueue)} high={Math.max(1, s.maxQueue) * 0.75} value={s.pending} aria-label={`Queue ${s.key}`}>
              {s.pending} of {s.maxQueue}
            </meter>
          </li>
        ))}
      </ul>
      <p data-testid="waits" title={snapshot.waits ? `${plural(snapshot.waits.granted, "grant")} in 15 minutes` : undefined}>
        wait p50 <b>{snapshot.waits ? duration(snapshot.waits.p50Ms) : unknown}</b> p95{" "}
        <b>{snapshot.waits ? duration(snapshot.waits.p95Ms) : unknown}</b>
      </p>
    </div>
  );
}
