import { Code, ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Gap } from "./apply.js";
import { Watch, backoff, firstWait, longestWait, silence } from "./watch.js";

/** A stream that the test writes to. */
class Stream {
  readonly signal: AbortSignal;
  private readonly items: string[] = [];
  private wake: () => void = () => undefined;
  private end: { error?: unknown } | undefined;

  constructor(signal: AbortSignal) {
    this.signal = signal;
    signal.addEventListener("abort", () => this.finish(new ConnectError("aborted", Code.Canceled)));
  }

  send(item: string): void {
    this.items.push(item);
    this.wake();
  }

  finish(error?: unknown): void {
    this.end ??= error === undefined ? {} : { error };
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for (;;) {
      const item = this.items.shift();
      if (item !== undefined) {
        yield item;
      } else if (this.end) {
        if (this.end.error !== undefined) {
          throw this.end.error;
        }
        return;
      } else {
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    }
  }
}

function site() {
  const streams: Stream[] = [];
  const log: string[] = [];
  const watch = new Watch<string>({
    open: (signal) => {
      const stream = new Stream(signal);
      streams.push(stream);
      return stream;
    },
    update: (u) => {
      if (u === "gap") {
        throw new Gap();
      }
      log.push(u);
    },
    forget: () => log.push("forget"),
    connection: (open, error) => log.push(open ? "open" : `lost: ${error}`),
    refused: () => log.push("refused"),
    random: () => 0,
  });
  return { streams, log, watch, last: () => streams.at(-1) as Stream };
}

const settle = () => vi.advanceTimersByTimeAsync(0);

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("watch", () => {
  test("U12 a lost stream is opened again after a growing wait, and the wait begins anew with an update", async () => {
    const { streams, log, watch, last } = site();
    watch.start();
    last().send("one");
    await settle();
    expect(log).toEqual(["one", "open"]);
    for (const wait of [500, 1000, 2000, 4000, 5000, 5000]) {
      const before = streams.length;
      last().finish(new ConnectError("gone", Code.Unavailable));
      await settle();
      await vi.advanceTimersByTimeAsync(wait - 1);
      expect(streams).toHaveLength(before);
      await vi.advanceTimersByTimeAsync(1);
      expect(streams).toHaveLength(before + 1);
    }
    last().send("two");
    await settle();
    last().finish();
    await settle();
    const before = streams.length;
    await vi.advanceTimersByTimeAsync(500);
    expect(streams).toHaveLength(before + 1);
    watch.stop();
  });

  test("a silent stream is given up", async () => {
    const { streams, watch, last } = site();
    watch.start();
    last().send("one");
    await settle();
    const first = last();
    await vi.advanceTimersByTimeAsync(silence - 1);
    expect(first.signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1 + firstWait);
    expect(first.signal.aborted).toBe(true);
    expect(streams).toHaveLength(2);
    watch.stop();
  });

  test("after a gap the whole is asked for", async () => {
    const { log, streams, watch, last } = site();
    watch.start();
    last().send("gap");
    await settle();
    expect(log[0]).toBe("forget");
    await vi.advanceTimersByTimeAsync(firstWait);
    expect(streams).toHaveLength(2);
    watch.stop();
  });

  test("U14 a page that nobody sees holds no stream", async () => {
    const { streams, log, watch, last } = site();
    watch.start();
    last().send("one");
    await settle();
    watch.setHidden(true);
    await settle();
    expect(last().signal.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(streams).toHaveLength(1);
    watch.setHidden(false);
    expect(streams).toHaveLength(2);
    expect(log).toEqual(["one", "open"]);
    watch.stop();
  });

  test("whoever may not watch does not try again until told to", async () => {
    const { streams, log, watch, last } = site();
    watch.start();
    last().finish(new ConnectError("no", Code.Unauthenticated));
    await settle();
    expect(log).toEqual(["lost: no", "refused"]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(streams).toHaveLength(1);
    watch.start();
    expect(streams).toHaveLength(2);
    watch.stop();
  });

  test("nothing follows a stop, however often it comes", async () => {
    const { streams, log, watch, last } = site();
    watch.start();
    await settle();
    watch.stop();
    watch.stop();
    last().send("late");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(streams).toHaveLength(1);
    expect(log).toEqual([]);
  });

  test("waits stay between the first and the longest", () => {
    expect(backoff(1, 0)).toBe(firstWait);
    expect(backoff(1, 1)).toBeGreaterThan(firstWait);
    expect(backoff(50, 1)).toBe(longestWait);
  });
});
