import type { Timestamp } from "@bufbuild/protobuf/wkt";

/** What is shown where a value is not known. */
export const unknown = "unknown";

/** Whatever the wire or a JSON copy of it may hold where a number belongs. */
export type Numeric = bigint | number | string | null | undefined;

/** A number out of a 64-bit field, which is a bigint; undefined where there is none. */
export function num(value: Numeric): number | undefined {
  if (value === null || value === undefined || value === "") {
    return undefined;
  }
  const n = Number(value);
  return Number.isFinite(n) ? n : undefined;
}

/** The numeric sum of what is known; never text joined to text (K05). */
export function sum(values: Iterable<Numeric>): number {
  let total = 0;
  for (const value of values) {
    total += num(value) ?? 0;
  }
  return total;
}

/** Milliseconds since 1970 of a timestamp; undefined where there is none. */
export function millis(at: Timestamp | null | undefined): number | undefined {
  const seconds = num(at?.seconds);
  return seconds === undefined ? undefined : seconds * 1000 + Math.floor((at?.nanos ?? 0) / 1e6);
}

/** How long ago at was, in milliseconds and never negative. */
export function since(at: Timestamp | null | undefined, now: number): number | undefined {
  const then = millis(at);
  return then === undefined ? undefined : Math.max(0, now - then);
}

/** A duration as people say it: 0.4s, 41s, 3m 05s, 2h 10m, 4d 3h. */
export function duration(ms: Numeric): string {
  const n = num(ms);
  if (n === undefined || n < 0) {
    return unknown;
  }
  if (n > 0 && n < 950) {
    return `${Math.max(0.1, Math.round(n / 100) / 10)}s`;
  }
  const s = Math.round(n / 1000);
  if (s < 60) {
    return `${s}s`;
  }
  if (s < 3600) {
    return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
  }
  if (s < 86400) {
    return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  }
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** An age that ticks: whole seconds only. */
export function age(ms: number | undefined): string {
  return ms === undefined ? unknown : duration(Math.floor(ms / 1000) * 1000);
}

/** A count, shortened from ten thousand on: 9999, 110k, 2.1M. */
export function count(value: Numeric): string {
  const n = num(value);
  if (n === undefined) {
    return unknown;
  }
  if (n < 10_000) {
    return String(n);
  }
  return n < 999_500 ? `${Math.round(n / 1000)}k` : `${(n / 1e6).toFixed(1)}M`;
}

/** A size in bytes. */
export function bytes(value: Numeric): string {
  const n = num(value);
  if (n === undefined) {
    return unknown;
  }
  if (n < 1024) {
    return `${n} B`;
  }
  return n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
}

/** A rate in one second. */
export function rate(value: number | undefined): string {
  if (value === undefined) {
    return unknown;
  }
  return value < 9.95 ? value.toFixed(1) : String(Math.round(value));
}

/** A time of day of the reader. */
export function clock(at: Timestamp | null | undefined): string {
  const ms = millis(at);
  return ms === undefined ? unknown : new Date(ms).toLocaleTimeString(undefined, { hour12: false });
}

/** Text that is there, else "unknown". */
export function known(text: string | null | undefined): string {
  return text === null || text === undefined || text === "" ? unknown : text;
}

/** n things: 1 slot, 2 slots. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}
