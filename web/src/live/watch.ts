import { Code, ConnectError } from "@connectrpc/connect";
import { Gap } from "./apply.js";

/** What a watch does and whom it tells. */
export interface WatchPlan<U> {
  /** Opens the stream, from where the state is on. */
  open(signal: AbortSignal): AsyncIterable<U>;
  /** Takes in one update; throws Gap where one is missing. */
  update(update: U): void;
  /** Forgets the state: the next stream is to begin with the whole. */
  forget(): void;
  /** The stream is open, or not, and why not. */
  connection(open: boolean, error: string): void;
  /** The caller may not watch. The watch has ended. */
  refused(): void;
  /** Between 0 and 1; spreads out those that come back. */
  random?: () => number;
}

/** First and longest wait before a stream is opened again, in milliseconds. */
export const firstWait = 500;
export const longestWait = 5000;

/** An update comes every second; a stream that is silent for so long is given up, in milliseconds. */
export const silence = 4000;

/** How long to wait after so many failures in a row. */
export function backoff(failures: number, random: number): number {
  return Math.min(longestWait, firstWait * 2 ** Math.min(failures - 1, 10) * (1 + random / 4));
}

/**
 * Keeps one server stream open: opens it again when it ends, with a growing wait
 * between, and none while nobody looks.
 */
export class Watch<U> {
  private readonly plan: WatchPlan<U>;
  private stream: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private stopped = false;
  private hidden = false;

  constructor(plan: WatchPlan<U>) {
    this.plan = plan;
  }

  /** Opens the stream, if none is open. */
  start(): void {
    this.stopped = false;
    this.reopen(0);
  }

  /** Ends it for good, or until start. */
  stop(): void {
    this.stopped = true;
    this.close();
  }

  /** A page that nobody sees holds no stream: browsers allow few to one place (U14). */
  setHidden(hidden: boolean): void {
    if (this.hidden === hidden) {
      return;
    }
    this.hidden = hidden;
    if (hidden) {
      this.close();
    } else {
      this.failures = 0;
      this.reopen(0);
    }
  }

  private close(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.stream?.abort();
    this.stream = undefined;
  }

  private reopen(after: number): void {
    if (this.stopped || this.hidden) {
      return;
    }
    this.close();
    if (after === 0) {
      void this.run();
    } else {
      this.timer = setTimeout(() => void this.run(), after);
    }
  }

  private async run(): Promise<void> {
    const stream = new AbortController();
    this.stream = stream;
    let quiet: ReturnType<typeof setTimeout> | undefined;
    const heard = () => {
      clearTimeout(quiet);
      quiet = setTimeout(() => stream.abort(new Error("nothing has come for too long")), silence);
    };
    let why: unknown;
    try {
      heard();
      for await (const update of this.plan.open(stream.signal)) {
        if (this.stream !== stream) {
          return;
        }
        heard();
        this.plan.update(update);
        this.failures = 0;
        this.plan.connection(true, "");
      }
    } catch (error) {
      why = error;
    } finally {
      clearTimeout(quiet);
      stream.abort();
    }
    if (this.stream === stream) {
      this.ended(why);
    }
  }

  private ended(why: unknown): void {
    this.stream = undefined;
    if (why instanceof Gap) {
      this.plan.forget();
    }
    const error = why === undefined ? undefined : ConnectError.from(why);
    if (error?.code === Code.Unauthenticated || error?.code === Code.PermissionDenied) {
      this.stopped = true;
      this.plan.connection(false, error.rawMessage);
      this.plan.refused();
      return;
    }
    this.failures++;
    this.plan.connection(false, error?.rawMessage ?? "the stream has ended");
    this.reopen(backoff(this.failures, (this.plan.random ?? Math.random)()));
  }
}
