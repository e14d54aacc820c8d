import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** One line of a process's log. */
export type Entry = Record<string, unknown>;

/** A running iop, and what it has logged. */
export class Process {
  readonly log: Entry[] = [];
  /** What it has printed, line by line. */
  readonly printed: string[] = [];
  private readonly child: ChildProcess;
  private readonly ended: Promise<unknown>;
  private readonly heard = new Set<() => void>();
  private over = false;

  constructor(...args: string[]) {
    const iop = process.env["IOP"];
    if (iop === undefined) {
      throw new Error("IOP names no binary; run make e2e-dashboard");
    }
    this.child = spawn(iop, [...args, "--log-format", "json", "--log-level", "info"], { stdio: ["ignore", "pipe", "pipe"] });
    this.ended = once(this.child, "exit").finally(() => {
      this.over = true;
      this.tell();
    });
    createInterface({ input: this.child.stdout! }).on("line", (line) => {
      this.printed.push(line);
      this.tell();
    });
    createInterface({ input: this.child.stderr! }).on("line", (line) => {
      try {
        this.log.push(JSON.parse(line) as Entry);
      } catch {
        this.log.push({ msg: line }); // an error before there is a log
      }
      this.tell();
    });
  }

  private tell(): void {
    for (const look of this.heard) {
      look();
    }
  }

  /** The first entry of that message, from now or before, that also fits. */
  async logged(message: string, fits: (e: Entry) => boolean = () => true): Promise<Entry> {
    return this.seen(`a log line "${message}"`, () => this.log.find((e) => e["msg"] === message && fits(e)));
  }

  /** The first line on stdout that fits. */
  async prints(pattern: RegExp): Promise<RegExpMatchArray> {
    return this.seen(`a line like ${pattern}`, () => this.printed.map((line) => line.match(pattern)).find((m) => m !== null) ?? undefined);
  }

  private async seen<T>(what: string, find: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = find();
        if (found !== undefined) {
          resolve(found);
        } else if (this.over) {
          reject(new Error(`the process ended before ${what}:\n${this.log.map((e) => JSON.stringify(e)).join("\n")}`));
        } else {
          return;
        }
        this.heard.delete(look);
      };
      this.heard.add(look);
      look();
    });
  }

  /** Ends it, in order or at once, and waits for that. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGKILL"): Promise<void> {
    this.child.kill("SIGCONT"); // one that stands still hears nothing else
    this.child.kill(signal);
    await this.ended;
  }

  /** Has it stand still, as a machine does that sleeps. */
  freeze(): void {
    this.child.kill("SIGSTOP");
  }

  /** Has it go on. */
  thaw(): void {
    this.child.kill("SIGCONT");
  }
}
