import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type WatchEdgeNodeSnapshotResponse, WatchEdgeNodeSnapshotResponseSchema } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { type From, edgeStore, isStale, shownTime, staleAfter } from "./store.js";

function full(sequence: bigint, revision: bigint): WatchEdgeNodeSnapshotResponse {
  return create(WatchEdgeNodeSnapshotResponseSchema, { sequence, update: { case: "full", value: { revision, instanceId: "i" } } });
}

function changes(from: bigint, sequence: bigint, revision: bigint): WatchEdgeNodeSnapshotResponse {
  return create(WatchEdgeNodeSnapshotResponseSchema, {
    sequence, update: { case: "changes", value: { fromSequence: from, rest: { revision, instanceId: "i" } } },
  });
}

/** An Edge whose streams bring what is listed, one after the other, and then hang until they are aborted. */
function site(...scripts: WatchEdgeNodeSnapshotResponse[][]) {
  const asked: From[] = [];
  let more: (update: WatchEdgeNodeSnapshotResponse) => void = () => undefined;
  const store = edgeStore(
    async function* (from, signal) {
      asked.push(from);
      yield* scripts.shift() ?? [];
      const pending: WatchEdgeNodeSnapshotResponse[] = [];
      let wake: () => void = () => undefined;
      more = (update) => {
        pending.push(update);
        wake();
      };
      signal.addEventListener("abort", () => wake());
      while (!signal.aborted) {
        const update = pending.shift();
        if (update) {
          yield update;
        } else {
          await new Promise<void>((resolve) => (wake = resolve));
        }
      }
    },
    { random: () => 0 },
  );
  return { store, asked, send: (update: WatchEdgeNodeSnapshotResponse) => more(update) };
}

const settle = () => vi.advanceTimersByTimeAsync(0);
const revision = (store: ReturnType<typeof site>["store"]) => store.get().shown?.snapshot.revision;

beforeEach(() => void vi.useFakeTimers({ now: 1_000_000 }));
afterEach(() => void vi.useRealTimers());

test("changes follow the whole, and a new stream goes on where the last one ended", async () => {
  const { store, asked } = site([full(5n, 1n), changes(5n, 6n, 2n)], [changes(6n, 7n, 3n)]);
  store.start();
  await settle();
  expect(revision(store)).toBe(2n);
  await vi.advanceTimersByTimeAsync(4000 + 500);
  expect(asked).toEqual([{ instanceId: "", sequence: 0n }, { instanceId: "i", sequence: 6n }]);
  expect(revision(store)).toBe(3n);
  store.stop();
});

test("a gap asks for the whole again, and what is shown stays meanwhile", async () => {
  const { store, asked } = site([full(5n, 1n), changes(99n, 100n, 2n)], [full(8n, 9n)]);
  store.start();
  await settle();
  expect(revision(store)).toBe(1n);
  await vi.advanceTimersByTimeAsync(500);
  expect(asked.at(-1)).toEqual({ instanceId: "", sequence: 0n });
  expect(revision(store)).toBe(9n);
  store.stop();
});

test("U12 what is shown is stale within three seconds of the last update, and ages stand still then", async () => {
  const { store } = site([full(5n, 1n)]);
  expect(isStale(store.get(), Date.now())).toBe(false);
  store.start();
  await settle();
  const heard = Date.now();
  expect(staleAfter).toBeLessThan(3000);
  expect(isStale(store.get(), heard + staleAfter)).toBe(false);
  expect(isStale(store.get(), heard + 3000)).toBe(true);
  expect(shownTime(store.get(), heard + 1000)).toBe(heard + 1000);
  expect(shownTime(store.get(), heard + 60_000)).toBe(heard);
  store.stop();
});

test("U13 Pause freezes what is shown and its ages, and Resume shows the newest", async () => {
  const { store, send } = site([full(5n, 1n)]);
  store.start();
  await settle();
  await vi.advanceTimersByTimeAsync(300);
  const paused = Date.now();
  store.pause();
  send(changes(5n, 6n, 2n));
  await vi.advanceTimersByTimeAsync(700);
  send(changes(6n, 7n, 3n));
  await settle();
  expect(revision(store)).toBe(1n);
  expect(store.get().missed).toBe(2);
  expect(shownTime(store.get(), Date.now())).toBe(paused);
  expect(isStale(store.get(), Date.now())).toBe(false);
  store.resume();
  expect(revision(store)).toBe(3n);
  expect(store.get().shownAt).toBe(paused + 700);
  store.stop();
});

test("listeners are told, and the view is the same object until something changes", async () => {
  const { store } = site([full(5n, 1n)]);
  const listener = vi.fn();
  const unsubscribe = store.subscribe(listener);
  expect(store.get()).toBe(store.get());
  store.start();
  await settle();
  expect(listener).toHaveBeenCalled();
  unsubscribe();
  listener.mockClear();
  store.pause();
  expect(listener).not.toHaveBeenCalled();
  store.stop();
});
