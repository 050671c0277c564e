import type { News } from "@perdure/client";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api } from "@/api/client";
import { keys, queryClient } from "@/api/queries";
import { useNews } from "@/app/news";
import type { Status, Why } from "@/lib/status";
import { joinThreads, mayMove, spanOf, type ThreadFilter, type ThreadRow, whyAges, whyOf } from "@/lib/threadlist";
import { serverNow } from "@/lib/time";

const pageSize = 200; // the most for which the server says why
const searched = 5_000; // threads that a search looks at
const pace = 2_500; // ms between two looks at the rows in view
export const tooMany = 2_000; // changes, of which each is joined with the list whenever one more comes

let anew = 0; // how often lists were asked for anew for that reason

/** The first and the last row in view. */
export interface View {
  first: number;
  last: number;
}

/** The list of threads, read page by page and kept up to date by the stream of changes. */
export function useThreadList(filter: ThreadFilter, view: RefObject<View>) {
  const { status, flow, user } = filter;
  const query = useInfiniteQuery({
    queryKey: [...keys.threads(), status, flow, user],
    initialPageParam: "",
    queryFn: async ({ pageParam, signal }) => {
      const since = anew;
      return { ...(await api.get("/v1/threads", { query: { limit: pageSize, why: true, after: pageParam, status: status as Status, flow, user }, signal })), since };
    },
    getNextPageParam: (page) => page.next || undefined,
    // While it is shown, the changes keep it current. It is read anew whenever it is shown again.
    staleTime: 0,
    refetchOnWindowFocus: false,
  });
  const pages = query.data?.pages;
  const changes = useChanges(Math.min(...(pages ?? []).map((page) => page.since)));
  const rows = useMemo(
    () => joinThreads((pages ?? []).map((page) => page.threads), changes, filter, !query.hasNextPage),
    [pages, changes, filter, query.hasNextPage],
  );
  const cursors = useMemo(() => new Map((pages ?? []).flatMap((page) => page.threads.map((row) => [row.id, row.cursor] as const))), [pages]);
  useReasons(filter, rows, cursors, view);
  const loaded = (pages?.length ?? 0) * pageSize;
  const { hasNextPage, isFetching, fetchNextPage } = query;
  useEffect(() => {
    if (filter.q && hasNextPage && !isFetching && loaded < searched) void fetchNextPage();
  }, [filter.q, hasNextPage, isFetching, fetchNextPage, loaded]);
  return { query, rows, loaded, searching: !!filter.q && hasNextPage && loaded < searched };
}

/**
 * What has changed since the list was read, brought together four times a second at most. If it is too much,
 * lists are asked for anew, and once no page is from before that, only what has changed since then counts.
 */
function useChanges(since: number): Map<string, ThreadRow | null> {
  const [changes, setChanges] = useState<Map<string, ThreadRow | null>>(() => new Map());
  const later = useRef<Map<string, ThreadRow | null>>(undefined); // changes since lists were asked for anew
  const limit = useRef(tooMany);
  const waiting = useRef(new Map<string, ThreadRow | null>());
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const reader = useCallback((news: News) => {
    if (news.kind === "open") {
      void queryClient.invalidateQueries({ queryKey: keys.threads() });
      return;
    }
    if (news.kind === "gone") waiting.current.set(news.thread, null);
    else waiting.current.set(news.thread.id, news.thread);
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      const come = waiting.current;
      waiting.current = new Map();
      if (later.current) later.current = new Map([...later.current, ...come]);
      setChanges((before) => new Map([...before, ...come]));
    }, 250);
  }, []);
  useNews(reader);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (changes.size <= limit.current) return;
    limit.current = changes.size + tooMany; // when to ask again if that fails
    later.current = new Map();
    anew++;
    void queryClient.invalidateQueries({ queryKey: keys.threads() });
  }, [changes]);
  useEffect(() => {
    if (since < anew || !later.current) return;
    setChanges(later.current);
    later.current = undefined;
    limit.current = tooMany;
  }, [since]);
  return changes;
}

const whyKey = (row: ThreadRow) => [...keys.threads(), "why", row.id, row.updated];

/**
 * Keeps the reasons of the rows in view that may move current while someone looks: one request has all of
 * them, or, in the result of a search, whose rows are far apart, one request has the reason that is oldest.
 */
function useReasons(filter: ThreadFilter, rows: ThreadRow[], cursors: ReadonlyMap<string, string>, view: RefObject<View>) {
  const { status, flow, user } = filter;
  useQuery({
    queryKey: [...keys.threads(), "reasons"],
    queryFn: async ({ signal }) => {
      const { first, last } = view.current;
      const moves = (row: ThreadRow) => mayMove(row, queryClient.getQueryData<Why>(whyKey(row)) ?? whyOf(row), serverNow());
      const moving = rows.map((row, at) => ({ row, at })).slice(first, last + 1).filter(({ row }) => moves(row));
      if (!moving.length) return null;
      const read = new Set<string>();
      if (!filter.q) {
        const { after, limit } = spanOf(rows, cursors, moving[0]!.at, moving.at(-1)!.at);
        const query = { why: true, after, limit: Math.min(limit, pageSize), status: status as Status, flow, user };
        for (const row of (await api.get("/v1/threads", { query, signal })).threads) {
          read.add(row.id);
          if (row.why) queryClient.setQueryData(whyKey(row), row.why);
        }
      }
      const age = (row: ThreadRow) => queryClient.getQueryState(whyKey(row))?.dataUpdatedAt ?? 0;
      const [oldest] = moving.map(({ row }) => row).filter((row) => !read.has(row.id)).sort((a, b) => age(a) - age(b));
      if (oldest) await queryClient.refetchQueries({ queryKey: whyKey(oldest) });
      return null;
    },
    refetchInterval: pace,
    retry: false,
  });
}

/** Why a row that is in view does not move, read again when it changes, and now and then while it waits. */
export function useWhy(row: ThreadRow): Why {
  const { data } = useQuery({
    queryKey: whyKey(row),
    queryFn: async ({ signal }) => (await api.get("/v1/threads/{thread}", { path: { thread: row.id }, query: { runs: 1 }, signal })).why ?? null,
    enabled: whyAges(row),
    initialData: row.why,
    staleTime: 15_000,
    refetchInterval: 15_000,
    retry: false,
  });
  return data ?? whyOf(row);
}
