import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useState } from "react";
import { useLocation, useRoute } from "wouter";
import { AdminService } from "../../../gen/ts/iop/admin/v1/admin_pb.js";
import {
  type CandidateVerdict,
  ControlService,
  type DecisionMoment,
  type EdgeNodeSnapshot,
  type Ending,
  type RequestSnapshot,
} from "../../../gen/ts/iop/control/v1/control_pb.js";
import { mayNot, message } from "../api/calls.js";
import { age, bytes, clock, count, duration, known, num, rate, since, unknown } from "../format.js";
import type { Tracked } from "../live/tracker.js";
import type { Role } from "./hooks.js";
import { ReadOnly } from "./machine.js";
import { Confirm, Modal } from "./modal.js";
import { who } from "./words.js";

interface Props {
  snapshot: EdgeNodeSnapshot;
  tracked: Tracked;
  now: number;
  may: Role;
  /** What comes before /request in the address. */
  base: string;
  /** The Edge itself is here, and can be asked for the record. */
  explains?: boolean;
}

/** The request that the address names, if it names one. */
export function RequestRoute(props: Props) {
  const [match, params] = useRoute(`${props.base}/request/:seq`);
  const [, navigate] = useLocation();
  const seq = params?.seq;
  if (!match || seq === undefined || !/^\d{1,19}$/.test(seq)) {
    return null;
  }
  return <RequestDialog key={seq} {...props} seq={BigInt(seq)} onClose={() => navigate(props.base === "" ? "/" : props.base)} />;
}

/** The decision record of a request: what was decided when, who could have taken it, and why not. */
function RequestDialog({ snapshot, tracked, now, may, seq, explains = true, onClose }: Props & { seq: bigint; onClose(): void }) {
  const live = snapshot.requests.find((r) => r.enqueueSeq === seq);
  const record = useQuery(
    ControlService.method.explainRequest,
    { request: { case: "enqueueSeq", value: seq } },
    { enabled: explains, refetchInterval: (query) => (query.state.data?.ending || query.state.error ? false : 1000) },
  );
  const request = live ?? record.data?.request;
  const ending = record.data?.ending ?? snapshot.endings.find((e) => e.enqueueSeq === seq);
  return (
    <Modal title={`Request #${seq}`} testId="request-dialog" drawer onClose={onClose}>
      {request || ending ? <Facts request={request} ending={ending} tracked={tracked} now={now} /> : null}
      {!request && !ending && !record.isPending ? <p>This request is no longer known here.</p> : null}
      {live ? <Cancel request={live} may={may} /> : null}
      {record.error && !mayNot(record.error) ? (
        <p role="alert" className="bad-text">
          {message(record.error)}
        </p>
      ) : null}
      {explains ? null : <p className="quiet">The decisions of a request are told by its own Edge.</p>}
      {record.data && record.data.candidates.length > 0 ? (
        <section className="part">
          <h3>Candidates now</h3>
          <Candidates of={record.data.candidates} more={0} caption="Candidates as they stand now" />
        </section>
      ) : null}
      {record.data && record.data.moments.length > 0 ? (
        <section className="part">
          <h3>What was decided</h3>
          <ol className="moments">
            {record.data.moments.map((m, i) => (
              <Moment key={i} m={m} forgotten={i === 1 ? (record.data?.momentsForgotten ?? 0) : 0} />
            ))}
          </ol>
        </section>
      ) : null}
    </Modal>
  );
}

function Facts({
  request: r,
  ending: e,
  tracked,
  now,
}: {
  request: RequestSnapshot | undefined;
  ending: Ending | undefined;
  tracked: Tracked;
  now: number;
}) {
  const about = r ?? e;
  const speed = r ? tracked.rates.get(r.enqueueSeq) : undefined;
  const node = r?.node || e?.node || "";
  return (
    <dl>
      <dt>Who</dt>
      <dd>{about?.client ? about.client : "no key"}</dd>
      <dt>Id</dt>
      <dd className="breakable">{known(about?.requestId)}</dd>
      <dt>Model</dt>
      <dd>{known(about?.model)}</dd>
      {r ? (
        <>
          <dt>Endpoint</dt>
          <dd>{r.endpoint === "" ? "typed run" : r.endpoint}</dd>
          <dt>Context</dt>
          <dd>
            {known(r.contextClass)}, about {count(r.estimatedInputTokens)} tokens in
          </dd>
        </>
      ) : null}
      <dt>State</dt>
      <dd data-testid="request-state">{e ? `ended: ${e.outcome.replaceAll("_", " ")}` : known(r?.state)}</dd>
      {e && e.detail !== "" ? (
        <>
          <dt>What happened</dt>
          <dd>{e.detail}</dd>
        </>
      ) : null}
      {r && !e && r.state === "waiting" ? (
        <>
          <dt>Waits</dt>
          <dd>
            {age(since(r.enqueuedAt, now))}
            {r.waitEndsAt ? `, until ${clock(r.waitEndsAt)} at the latest` : ""}
          </dd>
          <dt>Why</dt>
          <dd>
            <code>{known(r.reason)}</code> {r.sentence}
          </dd>
          <dt>What will help</dt>
          <dd>{known(r.unblocker)}</dd>
        </>
      ) : null}
      {node === "" ? null : (
        <>
          <dt>Runs on</dt>
          <dd>
            {node}/{r?.provider || e?.provider}
            {r?.target ? ` as ${r.target}` : ""}
          </dd>
        </>
      )}
      {r?.grantedAt && !e ? (
        <>
          <dt>Has its slot for</dt>
          <dd>{age(since(r.grantedAt, now))}</dd>
          <dt>First byte</dt>
          <dd>{r.firstByteAt ? `${age(since(r.firstByteAt, now))} ago` : "not yet"}</dd>
          <dt>Answer so far</dt>
          <dd>
            {bytes(r.answerBytes)} in {count(r.answerParts)} parts{speed === undefined ? "" : `, ${rate(speed)} each second`}
          </dd>
        </>
      ) : null}
      {e ? (
        <>
          <dt>Waited</dt>
          <dd>{showMs(e.queueMs)}</dd>
          <dt>Ran</dt>
          <dd>{num(e.runMs) === 0 ? "not at all" : duration(e.runMs)}</dd>
          <dt>First byte after</dt>
          <dd>{num(e.firstByteMs) === 0 ? unknown : duration(e.firstByteMs)}</dd>
          <dt>Tokens</dt>
          <dd>
            in {count(e.inputTokens)}, out {count(e.outputTokens)}
          </dd>
          {e.providerStatus === 0 ? null : (
            <>
              <dt>Provider answered</dt>
              <dd>{e.providerStatus}</dd>
            </>
          )}
        </>
      ) : null}
    </dl>
  );
}

function showMs(ms: bigint): string {
  return ms === 0n ? "not at all" : duration(ms);
}

function Cancel({ request, may }: { request: RequestSnapshot; may: Role }) {
  const [asking, setAsking] = useState(false);
  const [done, setDone] = useState("");
  const cancel = useMutation(AdminService.method.cancelRequest);
  if (may !== "admin") {
    return <ReadOnly may={may} />;
  }
  const run = () =>
    cancel.mutate(
      { request: { case: "enqueueSeq", value: request.enqueueSeq } },
      {
        onSuccess: (answer) => {
          setDone(`Cancelled while ${answer.state}.`);
          setAsking(false);
        },
      },
    );
  return (
    <>
      <div className="actions">
        <button
          type="button"
          className="danger"
          onClick={() => {
            cancel.reset();
            setAsking(true);
          }}
        >
          Cancel request
        </button>
      </div>
      <p role="status" className="done">
        {done}
      </p>
      {asking ? (
        <Confirm
          title={`Cancel request #${request.enqueueSeq}?`}
          consequence={`${who(request)} is told that the request was cancelled${request.node === "" ? "." : "; the slot comes back once the provider has ended it."}`}
          deed="Cancel request"
          danger
          pending={cancel.isPending}
          error={cancel.error ? message(cancel.error) : ""}
          onConfirm={run}
          onKeep={() => setAsking(false)}
        />
      ) : null}
    </>
  );
}

const kinds: Record<string, string> = {
  enqueue: "Arrived", grant: "Got a slot", head_change: "Looked at again", requeue: "Back in the queue", end: "Ended",
};

function Moment({ m, forgotten }: { m: DecisionMoment; forgotten: number }) {
  return (
    <>
      {forgotten > 0 ? <li className="quiet">{forgotten} moments between are forgotten.</li> : null}
      <li data-testid="moment" data-kind={m.kind}>
        <p>
          <span className="num quiet">{clock(m.at)}</span> <strong>{kinds[m.kind] ?? m.kind.replaceAll("_", " ")}</strong>
          {m.node === "" ? "" : ` of ${m.node}/${m.provider}`}
          {m.result === "" ? "" : `: ${m.result}`}
        </p>
        {m.reason === "" ? null : (
          <p className="why">
            <code>{m.reason}</code> {m.sentence}
          </p>
        )}
        {m.candidates.length > 0 ? <Candidates of={m.candidates} more={m.moreCandidates} caption={`Candidates at ${clock(m.at)}`} /> : null}
      </li>
    </>
  );
}

function Candidates({ of, more, caption }: { of: CandidateVerdict[]; more: number; caption: string }) {
  return (
    <section className="scroll" aria-label={caption} tabIndex={0}>
      <table data-testid="candidates">
        <caption className="unseen">{caption}</caption>
        <thead>
          <tr>
            <th scope="col">Candidate</th>
            <th scope="col" className="num">
              Slots
            </th>
            <th scope="col">Verdict</th>
          </tr>
        </thead>
        <tbody>
          {of.map((c) => (
            <tr key={`${c.node}/${c.provider}`}>
              <th scope="row">
                {c.node}/{c.provider}
              </th>
              <td className="num">
                {c.inFlight}/{c.capacity}
                {c.longContextCapacity > 0 ? `, long ${c.longInFlight}/${c.longContextCapacity}` : ""}
              </td>
              <td>
                {c.reason === "" ? (
                  "free"
                ) : (
                  <>
                    <code>{c.reason}</code> {c.sentence}
                  </>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {more > 0 ? <p className="quiet">and {more} more</p> : null}
    </section>
  );
}
