import { once } from "node:events";
import { type AddressInfo, type Server, type Socket, connect, createServer } from "node:net";

/**
 * An address that stays while the process behind it comes and goes: nobody else
 * can take it in between. It can also stop passing on what either side sends, and
 * counts the watches that pages hold open.
 */
export class Gateway {
  private readonly server: Server;
  private readonly links = new Map<Socket, Socket>();
  private readonly watching = new Set<Socket>();
  private target = 0;
  private stalled = false;

  private constructor() {
    this.server = createServer((near) => this.accept(near));
  }

  /** Opens one; connections are refused until it has a target. */
  static async open(): Promise<Gateway> {
    const g = new Gateway();
    g.server.listen(0, "127.0.0.1");
    await once(g.server, "listening");
    return g;
  }

  /** host:port. */
  get address(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Sends what comes from now on to host:port. */
  lead(address: string): void {
    this.target = Number(address.slice(address.lastIndexOf(":") + 1));
  }

  /** How many watches are open. */
  get watches(): number {
    return this.watching.size;
  }

  /** Keeps all connections, and passes nothing on. */
  stall(): void {
    this.stalled = true;
    for (const [near, far] of this.links) {
      near.pause();
      far.pause();
    }
  }

  /** Passes on again. */
  flow(): void {
    this.stalled = false;
    for (const [near, far] of this.links) {
      near.resume();
      far.resume();
    }
  }

  async close(): Promise<void> {
    this.server.close();
    for (const [near, far] of this.links) {
      near.destroy();
      far.destroy();
    }
    if (this.server.listening) {
      await once(this.server, "close");
    }
  }

  private accept(near: Socket): void {
    const far = connect(this.target, "127.0.0.1");
    this.links.set(near, far);
    const end = () => {
      near.destroy();
      far.destroy();
      this.links.delete(near);
      this.watching.delete(near);
    };
    near.on("error", end).on("close", end);
    far.on("error", end).on("close", end);
    near.on("data", (data) => {
      const head = data.toString("latin1");
      if (/^POST \S*\/Watch\w+ HTTP\/1\.1\r\n/.test(head)) {
        this.watching.add(near);
      } else if (/^[A-Z]+ \S+ HTTP\/1\.1\r\n/.test(head)) {
        this.watching.delete(near); // the next request of a connection that is kept
      }
      far.write(data);
    });
    far.on("data", (data) => {
      if (/^HTTP\/1\.1 [345]/.test(data.toString("latin1", 0, 16))) {
        this.watching.delete(near); // refused
      }
      near.write(data);
    });
    if (this.stalled) {
      near.pause();
      far.pause();
    }
  }
}
