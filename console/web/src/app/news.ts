import type { Connection, News } from "@perdure/client";
import { useEffect, useSyncExternalStore } from "react";
import { perdure } from "@/api/client";
import { keys, queryClient } from "@/api/queries";

const readers = new Set<(news: News) => void>();
const watchers = new Set<() => void>();
let state: Connection = "connecting";
let stop: AbortController | undefined;
let pending: ReturnType<typeof setTimeout> | undefined;

let refreshed = 0;
const changed = new Set<string>(); // threads, since then

/** Reads again what a change of any thread may have changed: at once, but at most once a second. */
function refresh() {
  pending ??= setTimeout(
    () => {
      pending = undefined;
      refreshed = Date.now();
      for (const queryKey of [keys.asks(), ["ask"], keys.stats()]) void queryClient.invalidateQueries({ queryKey });
      for (const thread of changed) void queryClient.invalidateQueries({ queryKey: keys.messages(thread) });
      changed.clear();
    },
    Math.max(0, refreshed + 1000 - Date.now()),
  );
}

/** Follows the changes of all threads, once for the whole page. */
export function startNews() {
  if (!stop) void follow((stop = new AbortController()));
}

async function follow(by: AbortController) {
  const onConnection = (now: Connection) => {
    if (now === "ended") return;
    state = now;
    for (const tell of watchers) tell();
  };
  try {
    for await (const news of perdure.watch({ signal: by.signal, onConnection })) {
      for (const tell of readers) tell(news);
      if (news.kind === "thread") changed.add(news.thread.id);
      refresh();
    }
  } catch {
    // It was stopped, or the user may not read: requests say so.
  }
  if (stop === by) stop = undefined;
}

export function stopNews() {
  stop?.abort();
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
