import { create } from "@bufbuild/protobuf";
import {
  type EdgeNodeSnapshot,
  EdgeNodeSnapshotSchema,
  type SnapshotChanges,
} from "../../../gen/ts/iop/control/v1/control_pb.js";

/** An update was missed: the whole state is to be asked for again. */
export class Gap extends Error {
  constructor() {
    super("an update is missing");
    this.name = "Gap";
  }
}

/** How many endings a state has at most. */
export const shownEndings = 32;

/**
 * Brings a state up to date, as the Edge's own Apply does (services/control).
 * Neither argument is changed; what has not changed keeps its identity. sequence
 * is that of the state.
 */
export function apply(state: EdgeNodeSnapshot, sequence: bigint, changes: SnapshotChanges): EdgeNodeSnapshot {
  if (changes.fromSequence !== sequence) {
    throw new Gap();
  }
  const next = { ...(changes.rest ?? create(EdgeNodeSnapshotSchema)) };
  if (!changes.catalogueChanged) {
    next.models = state.models;
    next.refreshes = state.refreshes;
    next.estimateScales = state.estimateScales;
  }

  const nodes = new Map([...state.nodes, ...changes.nodes].map((n) => [n.id, n]));
  const order = changes.orderChanged ? changes.nodeOrder : state.nodes.map((n) => n.id);
  next.nodes = order.flatMap((id) => nodes.get(id) ?? []);

  const requests = new Map([...state.requests, ...changes.requests].map((r) => [r.enqueueSeq, r]));
  for (const seq of changes.gone) {
    requests.delete(seq);
  }
  next.requests = [...requests.values()].sort((a, b) => (a.enqueueSeq < b.enqueueSeq ? -1 : 1));
  next.endings = [...changes.endings, ...state.endings].slice(0, shownEndings);
  return next;
}
