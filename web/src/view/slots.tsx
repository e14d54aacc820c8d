import { memo } from "react";
import type { EdgeNodeSnapshot, NodeSnapshot, ProviderSnapshot, RequestSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { age, count, plural, rate, sum } from "../format.js";
import { type Tracked, providerKey } from "../live/tracker.js";
import { Mark } from "./chrome.js";
import { excludedWords, modelsOf, nodeWords, overrideWords, requestAge, typeName, who } from "./words.js";

/** Free slots are drawn one by one up to so many. */
const drawnFree = 12;

/** One slot: who is in it, if the Edge says so. */
export interface Slot {
  request?: RequestSnapshot | undefined;
  busy: boolean;
  long: boolean;
}

/** The slots of a provider, each request in its own place. One that takes no work has only those that are still held. */
export function slotsOfProvider(node: NodeSnapshot, p: ProviderSnapshot, running: ReadonlyMap<bigint, RequestSnapshot>, tracked: Tracked): Slot[] {
  const places = tracked.places.get(providerKey(node.id, p.id)) ?? [];
  const slots: Slot[] = places.map((seq) => {
    const request = seq === null ? undefined : running.get(seq);
    return { request, busy: request !== undefined, long: request?.contextClass === "long" };
  });
  const open = p.status === "unavailable" ? 0 : p.effectiveCapacity;
  const total = Math.max(open, p.inFlight, slots.length);
  // Held, and the Edge does not say by whom.
  let unnamed = p.inFlight - slots.filter((s) => s.busy).length;
  let unnamedLong = p.longInFlight - slots.filter((s) => s.long).length;
  for (let i = 0; i < total; i++) {
    const slot = slots[i] ?? { busy: false, long: false };
    if (!slot.busy && unnamed > 0) {
      slots[i] = { busy: true, long: unnamedLong > 0 };
      unnamed--;
      unnamedLong--;
    } else {
      slots[i] = slot;
    }
  }
  return slots;
}

/** The slots of a whole machine as signs: ■ normal, ▬ long, □ free. */
export function glyphs(slots: readonly Slot[]): string {
  const signs = slots.map((s) => (s.busy ? (s.long ? "▬" : "■") : "□"));
  return signs.length <= 16 ? signs.join("") : `${signs.slice(0, 15).join("")}…`;
}

/** A slot is a square, one of a long request a bar twice as wide; full = bytes come back. */
function SlotSign({ long, state }: { long: boolean; state: string }) {
  const width = long ? 26 : 12;
  const filled = state === "streaming" || state === "busy" ? width : state === "prefill" ? width / 2 : state === "ending" ? width / 4 : 0;
  return (
    <svg className="sign" width={width + 2} height="14" viewBox={`0 0 ${width + 2} 14`} aria-hidden="true">
      <rect x="1" y="1" width={width} height="12" rx="2" className="edge" />
      <rect x="1" y="1" width={filled} height="12" rx="2" className="fill" />
    </svg>
  );
}

function SlotButton({
  slot,
  where,
  tracked,
  now,
  showModel,
  onOpen,
}: {
  slot: Slot;
  where: string;
  tracked: Tracked;
  now: number;
  showModel: boolean;
  onOpen(seq: bigint): void;
}) {
  const r = slot.request;
  const state = r?.state ?? (slot.busy ? "busy" : "free");
  const speed = r && r.state === "streaming" ? tracked.rates.get(r.enqueueSeq) : undefined;
  const told = r ? requestAge(r, now) : undefined;
  // A free slot stays the same element, so that the focus stays where it is when
  // the request in it ends.
  return (
    <li className={slot.long ? "long" : undefined}>
      <button
        type="button"
        className={`slot ${state}`}
        data-testid="slot"
        data-state={state}
        data-class={slot.long ? "long" : "normal"}
        data-seq={r?.enqueueSeq.toString()}
        aria-disabled={r ? undefined : true}
        tabIndex={r ? 0 : -1}
        onClick={r ? () => onOpen(r.enqueueSeq) : undefined}
      >
        <SlotSign long={slot.long} state={state} />
        <span className="unseen">
          {slot.busy ? (slot.long ? "Long slot" : "Slot") : "Free slot"} of {where}
        </span>
        {r ? (
          <>
            {slot.long ? <span className="long-word">LONG</span> : null}
            <span className="who">{who(r)}</span>
            {slot.long ? <span className="quiet">{count(r.estimatedInputTokens)} tok</span> : null}
            <span className="num">{age(told)}</span>
            <span className="quiet">
              {speed === undefined ? state : <><span className="unseen">{state}</span> {rate(speed)} ev/s</>}
            </span>
            {showModel ? <span className="quiet model">{r.model}</span> : null}
          </>
        ) : slot.busy ? (
          <span className="who">busy</span>
        ) : null}
      </button>
    </li>
  );
}

/** One provider and its slots. */
function Provider({
  snapshot,
  node,
  p,
  running,
  tracked,
  now,
  onOpen,
}: {
  snapshot: EdgeNodeSnapshot;
  node: NodeSnapshot;
  p: ProviderSnapshot;
  running: ReadonlyMap<bigint, RequestSnapshot>;
  tracked: Tracked;
  now: number;
  onOpen(seq: bigint): void;
}) {
  const slots = slotsOfProvider(node, p, running, tracked);
  const models = modelsOf(snapshot, node.id, p.id);
  const excluded = excludedWords(node, p, now);
  const where = `${node.id}/${p.id}`;
  const places = slots.map((slot, i) => ({ slot, i }));
  const freePlaces = places.filter(({ slot }) => !slot.busy);
  const hidden = new Set(freePlaces.slice(drawnFree));
  const drawn = places.filter((place) => !hidden.has(place));
  const off = !node.connected;
  return (
    <li
      className={`provider${off || excluded !== "" ? " out" : ""}`}
      data-testid="provider"
      data-node={node.id}
      data-provider={p.id}
      data-excluded={p.excludedReason}
    >
      <div className="provider-head">
        <span className="name">{p.id}</span>
        <span className="quiet">{typeName(p.type)}</span>
        <span className="quiet models">
          {models.slice(0, 2).join(", ")}
          {models.length > 2 ? ` +${models.length - 2}` : ""}
        </span>
        {p.health === "degraded" ? (
          <span className="tag warn">
            <Mark kind="warn" /> degraded
          </span>
        ) : null}
        {p.override?.mode === "enabled" ? <span className="tag">{overrideWords(p.override, now)}</span> : null}
        {excluded !== "" ? (
          <span className="tag warn" title={p.excludedSentence}>
            <Mark kind="off" /> {excluded}
          </span>
        ) : null}
        <span className="num taken">
          {off ? `${p.configuredCapacity} out` : `${p.inFlight}/${p.effectiveCapacity}`}
          {p.longContextCapacity > 0 ? (
            <span className="quiet">
              {" "}
              long {p.longInFlight}/{p.longContextCapacity}
            </span>
          ) : null}
        </span>
      </div>
      {drawn.length > 0 ? (
        <ul className="slots" aria-label={`Slots of ${where}`}>
          {drawn.map(({ slot, i }) => (
            <SlotButton key={i} slot={slot} where={where} tracked={tracked} now={now} showModel={models.length > 1} onOpen={onOpen} />
          ))}
          {hidden.size > 0 ? <li className="quiet">+{hidden.size} free</li> : null}
        </ul>
      ) : null}
      {p.idleBecause !== "" ? (
        <p className="why" data-testid="idle-because">
          {plural(freePlaces.length, "free slot")}: {p.idleBecause}
        </p>
      ) : excluded !== "" && p.excludedSentence !== "" ? (
        <p className="why">{p.excludedSentence}</p>
      ) : null}
    </li>
  );
}

/** One machine. Machines stay in the order of the configuration, whatever becomes of them. */
export const Machine = memo(function Machine({
  snapshot,
  node,
  running,
  tracked,
  now,
  narrow,
  expanded,
  onExpand,
  onOpen,
  onManage,
}: {
  snapshot: EdgeNodeSnapshot;
  node: NodeSnapshot;
  running: ReadonlyMap<bigint, RequestSnapshot>;
  tracked: Tracked;
  now: number;
  narrow: boolean;
  expanded: boolean;
  onExpand(): void;
  onOpen(seq: bigint): void;
  onManage(): void;
}) {
  const words = nodeWords(node, now);
  const state = node.state === "" ? (node.connected ? "connected" : "offline") : node.state;
  const all = node.providers.flatMap((p) => slotsOfProvider(node, p, running, tracked));
  const busy = all.filter((s) => s.busy).length;
  const kind = state === "connected" ? (words === "" ? "ok" : "off") : state === "late" ? "warn" : "bad";
  return (
    <li className={`machine ${state}`} data-testid="machine" data-node={node.id} data-state={state}>
      <div className="machine-head">
        {narrow ? (
          <button type="button" className="line" aria-expanded={expanded} onClick={onExpand}>
            <Mark kind={kind} />
            <span className="name">{node.id}</span>
            <span className="glyphs" aria-hidden="true">
              {glyphs(all)}
            </span>
            <span className="num">
              {all.length > 0 ? `${busy}/${all.length}` : `${sum(node.providers.map((p) => p.configuredCapacity))} out`}
              <span className="unseen"> slots</span>
            </span>
          </button>
        ) : (
          <h3>
            <Mark kind={kind} /> {node.id}
          </h3>
        )}
        {words === "" ? null : <span className={`tag ${kind}`}>{words}</span>}
        {narrow && !expanded ? null : (
          <button type="button" className="small manage" aria-label={`Manage ${node.id}`} onClick={onManage}>
            Manage
          </button>
        )}
      </div>
      {narrow && !expanded ? (
        node.providers.map((p) =>
          p.idleBecause === "" && excludedWords(node, p, now) === "" ? null : (
            <p className="why" key={p.id} data-testid={p.idleBecause === "" ? undefined : "idle-because"}>
              {p.id}: {p.idleBecause === "" ? excludedWords(node, p, now) : p.idleBecause}
            </p>
          ),
        )
      ) : (
        <ul className="providers" aria-label={`Providers of ${node.id}`}>
          {node.providers.map((p) => (
            <Provider key={p.id} snapshot={snapshot} node={node} p={p} running={running} tracked={tracked} now={now} onOpen={onOpen} />
          ))}
        </ul>
      )}
    </li>
  );
});
