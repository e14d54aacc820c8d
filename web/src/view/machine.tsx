import { useMutation } from "@connectrpc/connect-query";
import { useState } from "react";
import { AdminService, OverrideAction } from "../../../gen/ts/iop/admin/v1/admin_pb.js";
import type { EdgeNodeSnapshot, NodeSnapshot, ProviderSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { message } from "../api/calls.js";
import { age, known, plural, since, sum, unknown } from "../format.js";
import type { Role } from "./hooks.js";
import { Confirm, Modal } from "./modal.js";
import { excludedWords, modelsOf, nodeWords, overrideWords, typeName } from "./words.js";

interface Deed {
  name: "Enable" | "Disable" | "Drain" | "Reset";
  action: OverrideAction;
}

const enable: Deed = { name: "Enable", action: OverrideAction.ENABLE };
const disable: Deed = { name: "Disable", action: OverrideAction.DISABLE };
const drain: Deed = { name: "Drain", action: OverrideAction.DRAIN };
const reset: Deed = { name: "Reset", action: OverrideAction.RESET };

interface Asked extends Deed {
  provider: string;
  running: number;
}

/** A machine, its providers, and for an admin what can be done with them. */
export function MachineDialog({
  snapshot,
  node,
  now,
  may,
  onClose,
}: {
  snapshot: EdgeNodeSnapshot;
  node: NodeSnapshot;
  now: number;
  may: Role;
  onClose(): void;
}) {
  const [asked, setAsked] = useState<Asked | undefined>();
  const [done, setDone] = useState("");
  const override = useMutation(AdminService.method.setOverride);
  const running = sum(node.providers.map((p) => p.inFlight));
  const ask = (deed: Deed, provider: string, held: number) => {
    override.reset();
    setAsked({ ...deed, provider, running: held });
  };
  const act = () => {
    if (!asked) {
      return;
    }
    override.mutate(
      { node: node.id, provider: asked.provider, action: asked.action },
      {
        onSuccess: (answer) => {
          const about = asked.provider === "" ? node.id : `${node.id}/${asked.provider}`;
          const durable = answer.durable || !answer.override ? "" : ` It would not outlast a restart: ${answer.notDurableBecause}`;
          setDone(`${about} is ${answer.override ? answer.override.mode : "as the file says"}.${durable}`);
          setAsked(undefined);
        },
      },
    );
  };
  const state = nodeWords(node, now);
  return (
    <Modal title={`Machine ${node.id}`} testId="machine-dialog" drawer onClose={onClose}>
      <dl>
        <dt>State</dt>
        <dd>{state === "" ? "connected" : state}</dd>
        <dt>Connected for</dt>
        <dd>{node.connected ? age(since(node.connectedSince, now)) : "–"}</dd>
        <dt>Last heard of</dt>
        <dd>{node.lastSeen ? `${age(since(node.lastSeen, now))} ago` : "never"}</dd>
        <dt>Version</dt>
        <dd>{known(node.softwareVersion)}</dd>
        <dt>Platform</dt>
        <dd>{known(node.platform)}</dd>
        <dt>Override</dt>
        <dd>{node.override ? overrideWords(node.override, now) : "none"}</dd>
        {node.notice === "" ? null : (
          <>
            <dt>Notice</dt>
            <dd>{node.notice}</dd>
          </>
        )}
      </dl>
      {may === "admin" ? (
        <div className="actions">
          <button type="button" onClick={() => ask(drain, "", running)}>
            Drain {node.id}
          </button>
          <button type="button" disabled={!node.override} onClick={() => ask(reset, "", running)}>
            Reset {node.id}
          </button>
        </div>
      ) : (
        <ReadOnly may={may} />
      )}
      <p role="status" className="done">
        {done}
      </p>
      {node.providers.map((p) => (
        <ProviderPart key={p.id} snapshot={snapshot} node={node} p={p} now={now} admin={may === "admin"} onAsk={ask} />
      ))}
      {asked ? (
        <Confirm
          title={`${asked.name} ${asked.provider === "" ? node.id : `${node.id}/${asked.provider}`}?`}
          consequence={consequence(asked)}
          deed={asked.name}
          danger={asked.action === OverrideAction.DISABLE || asked.action === OverrideAction.DRAIN}
          pending={override.isPending}
          error={override.error ? message(override.error) : ""}
          onConfirm={act}
          onKeep={() => setAsked(undefined)}
        />
      ) : null}
    </Modal>
  );
}

function ProviderPart({
  snapshot,
  node,
  p,
  now,
  admin,
  onAsk,
}: {
  snapshot: EdgeNodeSnapshot;
  node: NodeSnapshot;
  p: ProviderSnapshot;
  now: number;
  admin: boolean;
  onAsk(deed: Deed, provider: string, running: number): void;
}) {
  const where = `${node.id}/${p.id}`;
  const excluded = excludedWords(node, p, now);
  const models = modelsOf(snapshot, node.id, p.id);
  return (
    <section className="part" aria-label={`Provider ${where}`}>
      <h3>{p.id}</h3>
      <dl>
        <dt>Server</dt>
        <dd>{typeName(p.type)}</dd>
        <dt>Status</dt>
        <dd>
          {known(p.status).replaceAll("_", " ")}, {known(p.health)}
          {excluded === "" ? "" : ` — ${excluded}`}
          {p.excludedSentence === "" ? "" : `. ${p.excludedSentence}`}
        </dd>
        <dt>Slots</dt>
        <dd>
          {p.inFlight} of {p.effectiveCapacity} taken, {p.configuredCapacity} configured
        </dd>
        <dt>Long</dt>
        <dd>
          {p.configuredLongContextCapacity === 0
            ? "no limit of its own"
            : `${p.longInFlight} of ${p.longContextCapacity} taken, ${p.configuredLongContextCapacity} configured`}
        </dd>
        <dt>Could run here</dt>
        <dd>
          {plural(p.queued, "waiting request")}, {p.longQueued} of them long
        </dd>
        <dt>Priority</dt>
        <dd>{p.priority}</dd>
        <dt>Models</dt>
        <dd>{models.length === 0 ? unknown : models.join(", ")}</dd>
        <dt>Override</dt>
        <dd>{p.override ? overrideWords(p.override, now) : "none"}</dd>
      </dl>
      {admin ? (
        <div className="actions">
          {[enable, disable, drain].map((deed) => (
            <button key={deed.name} type="button" aria-label={`${deed.name} ${where}`} onClick={() => onAsk(deed, p.id, p.inFlight)}>
              {deed.name}
            </button>
          ))}
          <button type="button" aria-label={`Reset ${where}`} disabled={!p.override} onClick={() => onAsk(reset, p.id, p.inFlight)}>
            Reset
          </button>
        </div>
      ) : null}
    </section>
  );
}

function consequence(asked: Asked): string {
  const what = asked.provider === "" ? "The machine" : "The provider";
  const running = asked.running === 0 ? "Nothing runs there now." : `${plural(asked.running, "request runs", "requests run")} there now and may finish.`;
  switch (asked.action) {
    case OverrideAction.DISABLE:
      return `${what} gets nothing new until it is enabled or reset. ${running}`;
    case OverrideAction.DRAIN:
      return `${what} gets nothing new, so that it falls idle. ${running}`;
    case OverrideAction.ENABLE:
      return `${what} takes new work, whatever the file says.`;
    default:
      return "The override is taken back: what the file says counts again.";
  }
}

/** Says why there are no controls. */
export function ReadOnly({ may }: { may: Role }) {
  return may === "reader" ? (
    <p className="quiet" data-testid="read-only">
      Read-only: this token may look. Sign in with an admin token to change anything.
    </p>
  ) : null;
}
