import type { EdgeNodeSnapshot, WatchEdgeNodeSnapshotResponse } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { Gap, apply } from "./apply.js";
import { type Tracked, Tracker } from "./tracker.js";
import { Watch } from "./watch.js";

/** Everything that is shown of a live state. It is never changed: each change makes a new one. */
export interface Live<T> {
  /** What is shown: the newest, or while paused what was shown then. All numbers of a screen come from this one. */
  readonly shown: T | undefined;
  /** When that came, by the reader's clock. */
  readonly shownAt: number;
  /** When the last update came, shown or not. */
  readonly heardAt: number;
  /** Whether a stream is open, and what ended the last one. */
  readonly open: boolean;
  readonly error: string;
  /** Since when the reader has it paused, and how many updates were not shown. */
  readonly pausedAt: number | undefined;
  readonly missed: number;
  /** How often in a row the token has not done; 0 = it does, as far as is known. */
  readonly refused: number;
}

/** An update comes every second: without one for so long, what is shown is stale (U12: a banner within 3 s). */
export const staleAfter = 2500;

/** Whether what is shown is to be marked as stale. */
export function isStale(live: Live<unknown>, now: number): boolean {
  return live.shown !== undefined && now - live.heardAt > staleAfter;
}

/** The time that ages are told by: it stands still where what is shown does. */
export function shownTime(live: Live<unknown>, now: number): number {
  return live.pausedAt ?? (isStale(live, now) ? live.heardAt : now);
}

/** Keeps what one watch brings, for React's useSyncExternalStore. */
export class LiveStore<T, U> {
  private view: Live<T> = {
    shown: undefined, shownAt: 0, heardAt: 0, open: false, error: "", pausedAt: undefined, missed: 0, refused: 0,
  };
  private newest: T | undefined;
  private readonly listeners = new Set<() => void>();
  private readonly watch: Watch<U>;
  private readonly now: () => number;

  constructor(
    source: { open(signal: AbortSignal): AsyncIterable<U>; next(update: U): T; forget(): void },
    clock: { now?: () => number; random?: () => number } = {},
  ) {
    this.now = clock.now ?? Date.now;
    this.watch = new Watch<U>({
      open: (signal) => source.open(signal),
      forget: () => source.forget(),
      update: (update) => this.take(source.next(update)),
      connection: (open, error) => {
        if (open !== this.view.open || error !== this.view.error) {
          this.set({ open, error });
        }
      },
      refused: () => this.set({ refused: this.view.refused + 1 }),
      ...(clock.random ? { random: clock.random } : {}),
    });
  }

  /** For useSyncExternalStore. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** For useSyncExternalStore. */
  readonly get = (): Live<T> => this.view;

  start(): void {
    this.watch.start();
  }

  stop(): void {
    this.watch.stop();
  }

  setHidden(hidden: boolean): void {
    this.watch.setHidden(hidden);
  }

  /** Freezes what is shown; the stream goes on. */
  pause(): void {
    if (this.view.pausedAt === undefined) {
      this.set({ pausedAt: this.now(), missed: 0 });
    }
  }

  /** Shows the newest again. */
  resume(): void {
    this.set({ pausedAt: undefined, missed: 0, shown: this.newest, shownAt: this.view.heardAt });
  }

  private take(newest: T): void {
    this.newest = newest;
    const heardAt = this.now();
    if (this.view.pausedAt === undefined) {
      this.set({ shown: newest, shownAt: heardAt, heardAt, refused: 0 });
    } else {
      this.set({ heardAt, missed: this.view.missed + 1, refused: 0 });
    }
  }

  private set(change: Partial<Live<T>>): void {
    this.view = { ...this.view, ...change };
    for (const listener of this.listeners) {
      listener();
    }
  }
}

/** One Edge's state, and what following it has shown. */
export interface EdgeState {
  readonly snapshot: EdgeNodeSnapshot;
  readonly tracked: Tracked;
}

/** What the Edge's watch is called with. */
export interface From {
  instanceId: string;
  sequence: bigint;
}

/** Follows one Edge over its own watch. */
export function edgeStore(
  open: (from: From, signal: AbortSignal) => AsyncIterable<WatchEdgeNodeSnapshotResponse>,
  clock: { now?: () => number; random?: () => number } = {},
): LiveStore<EdgeState, WatchEdgeNodeSnapshotResponse> {
  const tracker = new Tracker();
  let snapshot: EdgeNodeSnapshot | undefined;
  let sequence = 0n;
  return new LiveStore(
    {
      open: (signal) => open({ instanceId: snapshot?.instanceId ?? "", sequence }, signal),
      forget: () => {
        snapshot = undefined;
        sequence = 0n;
      },
      next: ({ update, sequence: to }) => {
        if (update.case === "full") {
          snapshot = update.value;
        } else if (update.case === "changes" && snapshot) {
          snapshot = apply(snapshot, sequence, update.value);
        } else {
          throw new Gap();
        }
        sequence = to;
        return { snapshot, tracked: tracker.observe(snapshot) };
      },
    },
    clock,
  );
}
