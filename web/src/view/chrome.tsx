import { type ReactNode, useEffect } from "react";
import { Link, useLocation } from "wouter";
import { signOut } from "../api/session.js";
import { age } from "../format.js";
import { type Live, isStale } from "../live/store.js";
import { useNow } from "./hooks.js";

/** A page that the navigation leads to. */
export interface Page {
  path: string;
  name: string;
}

/** What surrounds every page: who this is, how fresh, the sums, and the way around. */
export function Chrome({
  title,
  live,
  now,
  revision,
  summary,
  alerts,
  pages,
  onPause,
  children,
}: {
  title: string;
  live: Live<unknown>;
  now: number;
  revision: bigint | undefined;
  summary: ReactNode;
  alerts: ReactNode;
  pages: Page[];
  onPause(): void;
  children: ReactNode;
}) {
  const paused = live.pausedAt !== undefined;
  const stale = isStale(live, now);
  const state = stale ? "stale" : paused ? "paused" : "live";
  useEffect(() => {
    document.title = `${title} · IOP`;
  }, [title]);
  return (
    <div className={`site ${state}`} data-testid="site" data-revision={revision?.toString()} data-connection={state}>
      <header>
        <h1>
          <span className="brand">IOP</span> {title}
        </h1>
        <LiveAge live={live} />
        {summary}
        <div className="actions">
          <button type="button" onClick={onPause} aria-pressed={paused}>
            {paused ? "Resume" : "Pause"}
          </button>
          <button type="button" className="plain" onClick={signOut}>
            Sign out
          </button>
        </div>
      </header>
      <Nav pages={pages} />
      <div role="status">
        {stale ? (
          <p className="banner bad" data-testid="stale-banner">
            <Mark kind="bad" /> <strong>Stale:</strong> the connection is lost. What you see is as it was at{" "}
            {new Date(live.heardAt).toLocaleTimeString(undefined, { hour12: false })}. Reconnecting
            {live.error === "" ? "" : ` (${live.error})`}.
          </p>
        ) : null}
        {paused ? (
          <p className="banner warn">
            <Mark kind="warn" /> <strong>Paused.</strong> Nothing below moves until you resume.
          </p>
        ) : null}
      </div>
      {alerts}
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

/** How long ago the newest state came. It is no live region: it would never be silent. */
function LiveAge({ live }: { live: Live<unknown> }) {
  const now = useNow(200);
  const ms = Math.max(0, now - live.heardAt);
  const stale = isStale(live, now);
  const text = ms < 10_000 ? `${(Math.floor(ms / 100) / 10).toFixed(1)}s` : age(ms);
  const word = stale ? "stale" : live.pausedAt === undefined ? "live" : "paused";
  return (
    <span className={`live-age ${word}`} data-testid="live-age">
      <Mark kind={stale ? "bad" : live.pausedAt === undefined ? "ok" : "warn"} /> {word} {text}
    </span>
  );
}

function Nav({ pages }: { pages: Page[] }) {
  const [here] = useLocation();
  const current = pages.findLast((p) => here === p.path || (p.path !== "/" && here.startsWith(`${p.path}/`))) ?? pages[0];
  return (
    <nav aria-label="Pages">
      <ul>
        {pages.map((page) => (
          <li key={page.path}>
            <Link href={page.path} aria-current={page === current ? "page" : undefined}>
              {page.name}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** A sign beside a word, so that colour is never all there is. */
export function Mark({ kind }: { kind: "ok" | "warn" | "bad" | "off" }) {
  const sign = { ok: "●", warn: "▲", bad: "✗", off: "○" }[kind];
  return (
    <span className={`mark ${kind}`} aria-hidden="true">
      {sign}
    </span>
  );
}

/** Before the first state has come. */
export function Connecting({ error }: { error: string }) {
  return (
    <main className="login" data-testid="connecting">
      <div role="status">
        <h1>IOP</h1>
        <p>{error === "" ? "Connecting …" : `Not connected (${error}). Trying again …`}</p>
      </div>
    </main>
  );
}
