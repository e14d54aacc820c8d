import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { useQuery } from "@connectrpc/connect-query";
import { AdminService } from "../../../gen/ts/iop/admin/v1/admin_pb.js";
import { hasNoFile, mayNot } from "../api/calls.js";
import type { Live, LiveStore } from "../live/store.js";

/** The reader's clock, told anew at each beat of so many milliseconds. */
export function useNow(beat: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), beat);
    return () => clearInterval(timer);
  }, [beat]);
  return now;
}

/** Whether a media query holds. */
export function useMedia(query: string): boolean {
  const subscribe = useCallback(
    (listener: () => void) => {
      const list = matchMedia(query);
      list.addEventListener("change", listener);
      return () => list.removeEventListener("change", listener);
    },
    [query],
  );
  return useSyncExternalStore(subscribe, () => matchMedia(query).matches);
}

/** Follows a store while the page is there, and lets its stream go while nobody sees the page (U14). */
export function useLive<T, U>(store: LiveStore<T, U>): Live<T> {
  useEffect(() => {
    const seen = () => store.setHidden(document.visibilityState === "hidden");
    seen();
    document.addEventListener("visibilitychange", seen);
    store.start();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      store.stop();
    };
  }, [store]);
  return useSyncExternalStore(store.subscribe, store.get);
}

/** What the token may do: an admin's may everything, a reader's only look. */
export type Role = "admin" | "reader" | "unknown";

/** Finds the role out by an admin call that changes nothing. */
export function useRole(enabled: boolean): Role {
  const check = useQuery(AdminService.method.checkConfig, {}, { enabled, retry: (_, error) => !mayNot(error) && !hasNoFile(error), staleTime: Infinity });
  if (check.isSuccess || (check.isError && hasNoFile(check.error))) {
    return "admin";
  }
  return check.isError && mayNot(check.error) ? "reader" : "unknown";
}
