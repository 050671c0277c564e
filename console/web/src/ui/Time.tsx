import { useSyncExternalStore } from "react";
import { duration, exact, relative, serverNow } from "@/lib/time";

let now = serverNow();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void) {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = serverNow();
    for (const tell of listeners) tell();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (!listeners.size) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time now, to the second. One clock serves the whole page. */
export const useNow = () => useSyncExternalStore(subscribe, () => (timer ? now : (now = Math.floor(serverNow() / 1000) * 1000)));

/** A time relative to now; the exact one on hover. */
export function Time({ at, className }: { at: string; className?: string }) {
  const value = Date.parse(at);
  const text = relative(value, useNow());
  return (
    <time dateTime={at} title={exact(value)} className={className}>
      {text}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Took({ from, to, className }: { from: string; to?: string; className?: string }) {
  const clock = useNow();
  const ms = Math.max(0, (to ? Date.parse(to) : clock) - Date.parse(from));
  return (
    <span title={`${exact(Date.parse(from))}${to ? ` to ${exact(Date.parse(to))}` : ""}`} className={className}>
      {duration(to ? ms : Math.floor(ms / 1000) * 1000)}
    </span>
  );
}
