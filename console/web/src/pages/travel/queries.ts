import type { News } from "@perdure/client";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { api } from "@/api/client";
import { keys } from "@/api/queries";
import { useNews } from "@/app/news";
import { type Entry, entryOf, idOf } from "@/lib/journal";

const journalKey = (thread: string) => [...keys.thread(thread), "journal"] as const;

/** The events of a thread without their values. What was read before is kept, and only the rest is read. */
export function useJournal(thread: string) {
  const client = useQueryClient();
  const journal = useQuery({
    queryKey: journalKey(thread),
    queryFn: async ({ signal }) => {
      const known = client.getQueryData<Entry[]>(journalKey(thread)) ?? [];
      const all = [...known];
      let after = known.length ? idOf(known.at(-1)!.seq, known.at(-1)!.life) : undefined;
      do {
        const page = await api.get("/v1/threads/{thread}/events", { path: { thread }, query: { after, limit: 1000 }, signal });
        if (!page || !("events" in page)) break;
        all.push(...page.events.map(entryOf));
        after = page.next === undefined ? undefined : String(page.next);
      } while (after);
      return all;
    },
    staleTime: 0,
    structuralSharing: false,
  });
  const { refetch } = journal;
  useNews(
    useCallback(
      (news: News) => {
        if (news.kind === "open" || (news.kind === "thread" && news.thread.id === thread)) void refetch();
      },
      [thread, refetch],
    ),
  );
  return journal;
}

/** The conversation of a thread at a sequence. */
export const useMessagesAt = (thread: string, at: number) =>
  useQuery({
    queryKey: keys.messages(thread, at),
    queryFn: () => api.get("/v1/threads/{thread}/messages", { path: { thread }, query: { at } }),
    enabled: at > 0,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });

export const useStateAt = (thread: string, at: number) =>
  useQuery({
    queryKey: keys.state(thread, at),
    queryFn: () => api.get("/v1/threads/{thread}/state", { path: { thread }, query: { at } }),
    enabled: at > 0,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });

export const useFilesAt = (thread: string, at: number) =>
  useQuery({
    queryKey: keys.files(thread, at),
    queryFn: () => api.get("/v1/threads/{thread}/files", { path: { thread }, query: { at } }),
    enabled: at > 0,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });

export const useFileAt = (thread: string, at: number, path: string | undefined) =>
  useQuery({
    queryKey: [...keys.files(thread, at), path],
    queryFn: () => api.get("/v1/threads/{thread}/files", { path: { thread }, query: { at, path } }),
    enabled: at > 0 && path !== undefined,
    staleTime: Infinity,
  });

/** One event with its value. */
export const useEventAt = (thread: string, at: number, life?: string) =>
  useQuery({
    queryKey: [...keys.thread(thread), "event", at] as const,
    queryFn: async () => {
      const after = at > 1 ? idOf(at - 1, life) : undefined;
      const page = await api.get("/v1/threads/{thread}/events", { path: { thread }, query: { after, limit: 1 } });
      return page && "events" in page ? (page.events[0] ?? null) : null;
    },
    enabled: at > 0,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });

export interface Sides {
  thread: string;
  at: number;
  with: string;
  and: number;
}

/** What changed from one point to another, which may be of another thread. */
export const useDifference = (s: Sides | undefined) =>
  useQuery({
    queryKey: ["difference", s] as const,
    queryFn: () =>
      api.get("/v1/threads/{thread}/diff", {
        path: { thread: s!.thread },
        query: { from: s!.at, to: s!.and, with: s!.with === s!.thread ? undefined : s!.with },
      }),
    enabled: s !== undefined && s.at > 0 && s.and > 0,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });
