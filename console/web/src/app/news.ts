import { useEffect, useSyncExternalStore } from "react";
import { address, type Schemas } from "@/api/client";
import { keys, queryClient } from "@/api/queries";
import { follow, type StreamState } from "@/api/stream";

export type News = { kind: "open" } | { kind: "thread"; thread: Schemas["Summary"] } | { kind: "gone"; thread: string };

const readers = new Set<(news: News) => void>();
const watchers = new Set<() => void>();
let state: StreamState = "connecting";
let stop: (() => void) | undefined;
let pending: ReturnType<typeof setTimeout> | undefined;

let refreshed = 0;

/** Reads again what a change of any thread may have changed: at once, but at most once a second. */
function refresh() {
  pending ??= setTimeout(
    () => {
      pending = undefined;
      refreshed = Date.now();
      for (const queryKey of [keys.asks(), ["ask"], keys.stats()]) void queryClient.invalidateQueries({ queryKey });
    },
    Math.max(0, refreshed + 1000 - Date.now()),
  );
}

/** Follows the changes of all threads, once for the whole page. */
export function startNews() {
  stop ??= follow({
    url: address("/v1/events"),
    onState: (now) => {
      state = now;
      for (const tell of watchers) tell();
    },
    onEnd: () => {
      stop = undefined;
    },
    onBlock: (block) => {
      const data = JSON.parse(block.data) as Schemas["News"];
      const news: News = data.thread
        ? { kind: "thread", thread: data.thread }
        : block.event === "gone" && data.gone
          ? { kind: "gone", thread: data.gone }
          : { kind: "open" };
      for (const tell of readers) tell(news);
      refresh();
    },
  });
}

export function stopNews() {
  stop?.();
  stop = undefined;
}

/** Calls back with every change of a thread while the component is shown. */
export function useNews(reader: (news: News) => void) {
  useEffect(() => {
    readers.add(reader);
    return () => void readers.delete(reader);
  }, [reader]);
}

const subscribe = (watcher: () => void) => {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
};

export const useConnection = () => useSyncExternalStore(subscribe, () => state);
