import type { News } from "@perdure/client";
import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { api, type Schemas } from "@/api/client";
import { keys, useWrite } from "@/api/queries";
import { useNews } from "@/app/news";
import { failure } from "@/lib/lost";
import { say, sayError } from "@/ui/Toast";

export const opsKeys = {
  all: () => ["operations"] as const,
  trouble: () => ["operations", "trouble"] as const,
  working: () => ["operations", "working"] as const,
  usage: () => ["operations", "usage"] as const,
  retention: () => ["operations", "retention"] as const,
  due: () => ["operations", "due"] as const,
  schedules: () => ["operations", "schedules"] as const,
  bulk: () => ["operations", "bulk"] as const,
  archived: () => ["operations", "archived"] as const,
  rules: () => ["operations", "rules"] as const,
  tokens: () => ["operations", "tokens"] as const,
};

export const troubles = ["quarantined", "blocked", "failed", "damaged"] as const;
const perStatus = 100;

/** Threads that do not go on by themselves, the newest first within each status. */
export function useTrouble() {
  const client = useQueryClient();
  useNews(
    useCallback(
      (news: News) => {
        if (news.kind === "open" || news.kind === "gone") void client.invalidateQueries({ queryKey: opsKeys.all() });
        else void client.invalidateQueries({ queryKey: opsKeys.trouble() });
      },
      [client],
    ),
  );
  return useQuery({
    queryKey: opsKeys.trouble(),
    queryFn: async ({ signal }) => {
      const pages = await Promise.all(troubles.map((status) => api.get("/v1/threads", { query: { status, limit: perStatus, why: true }, signal })));
      return { threads: pages.flatMap((page) => page.threads), more: pages.some((page) => page.next !== undefined) };
    },
    placeholderData: keepPreviousData,
  });
}

/** Threads whose run is being executed now. */
export const useWorking = () =>
  useQuery({
    queryKey: opsKeys.working(),
    queryFn: ({ signal }) => api.get("/v1/threads", { query: { status: "running", limit: 50, why: true }, signal }),
    refetchInterval: 5_000,
    placeholderData: keepPreviousData,
  });

export const useUsage = () => useQuery({ queryKey: opsKeys.usage(), queryFn: () => api.get("/v1/usage"), refetchInterval: 15_000 });

export const useRetention = () => useQuery({ queryKey: opsKeys.retention(), queryFn: () => api.get("/v1/retention") });

export const useDue = (wanted: boolean) =>
  useInfiniteQuery({
    queryKey: opsKeys.due(),
    queryFn: ({ pageParam }) => api.get("/v1/retention/due", { query: { after: pageParam || undefined, limit: 100 } }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    enabled: wanted,
    staleTime: 0,
  });

export const useArchived = () =>
  useInfiniteQuery({
    queryKey: opsKeys.archived(),
    queryFn: ({ pageParam }) => api.get("/v1/archived", { query: { after: pageParam || undefined, limit: 100 } }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
  });

export const useSchedules = () => useQuery({ queryKey: opsKeys.schedules(), queryFn: () => api.get("/v1/schedules"), refetchInterval: 5_000 });

export const useBulk = () =>
  useQuery({
    queryKey: opsKeys.bulk(),
    queryFn: () => api.get("/v1/bulk"),
    refetchInterval: (query) => (query.state.data?.jobs.some(moving) ? 1_000 : 15_000),
  });

export const moving = (job: Schemas["Bulk"]) => job.ended === undefined && job.state !== "stopped";

export const useRules = () => useQuery({ queryKey: opsKeys.rules(), queryFn: () => api.get("/v1/rules") });

export const useTokens = (allowed: boolean) => useQuery({ queryKey: opsKeys.tokens(), queryFn: () => api.get("/v1/tokens"), enabled: allowed });

/** Does something, with several things at a time, and says how it went. What operations show is read again. */
export function useDoing<A, R>(done: (result: R, args: A) => string, failed: string, act: (args: A) => Promise<R>) {
  const client = useQueryClient();
  const doing = {
    mutationFn: act,
    onSuccess: (result: R, args: A) => say(done(result, args)),
    onError: (error: Error) => sayError(...failure(failed, error, "The request", "The server does not answer. What the page shows once it does says whether it came; look before you repeat it.")),
    onSettled: () => {
      void client.invalidateQueries({ queryKey: opsKeys.all() });
      void client.invalidateQueries({ queryKey: keys.stats() });
    },
  };
  return useWrite<R, A>(doing, true);
}
