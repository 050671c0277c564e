import { keepPreviousData, QueryClient, useMutation, type UseMutationOptions, type UseMutationResult, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, Problem, type Schemas } from "./client";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: (failures, error) => failures < 2 && error instanceof Problem && (error.status === 0 || error.status >= 500),
      refetchOnWindowFocus: true,
      networkMode: "always",
    },
    // What a person does happens now or not at all: never later, when the network is back.
    mutations: { networkMode: "always", retry: false },
  },
});

/** The keys of what is cached, one function for each operation. */
export const keys = {
  me: () => ["me"] as const,
  stats: () => ["stats"] as const,
  flows: () => ["flows"] as const,
  workers: () => ["workers"] as const,
  asks: () => ["asks"] as const,
  ask: (ask: string) => ["ask", ask] as const,
  threads: () => ["threads"] as const,
  thread: (thread: string) => ["thread", thread] as const,
  postmortem: (thread: string, run: string) => ["thread", thread, "postmortem", run] as const,
  state: (thread: string, at?: number) => ["thread", thread, "state", at ?? "now"] as const,
  messages: (thread: string, at?: number) => ["thread", thread, "messages", at ?? "now"] as const,
  files: (thread: string, at?: number) => ["thread", thread, "files", at ?? "now"] as const,
  memory: (under: string) => ["memory", under] as const,
};

export const meQuery = () => ({ queryKey: keys.me(), queryFn: () => api.get("/v1/me"), staleTime: 60_000, retry: false });

export const useMe = () => useQuery(meQuery());

export const useStats = () => useQuery({ queryKey: keys.stats(), queryFn: () => api.get("/v1/stats"), placeholderData: keepPreviousData });

export const useFlows = () => useQuery({ queryKey: keys.flows(), queryFn: () => api.get("/v1/flows") });

/** Whether a flow is a turn of an agent, which takes messages. */
export const useChats = (flow: string | undefined) => !!useFlows().data?.flows?.some((one) => one.name === flow && one.agent);

export const useWorkers = () => useQuery({ queryKey: keys.workers(), queryFn: () => api.get("/v1/workers"), refetchInterval: 5_000 });

export type AskOrder = "opened" | "expires";

export const useAsks = (order: AskOrder = "opened", mine = false) =>
  useQuery({
    queryKey: [...keys.asks(), order, mine],
    queryFn: () => api.get("/v1/asks", { query: { limit: 1000, order, mine } }),
    placeholderData: keepPreviousData,
  });

export const useAsk = (ask: string, known?: Schemas["AskInfo"]) =>
  useQuery({ queryKey: keys.ask(ask), queryFn: () => api.get("/v1/asks/{ask}", { path: { ask } }), placeholderData: known, enabled: ask !== "" });

/** The threads that wait for a person, for what asks do not say about them. */
export const useAskingThreads = () =>
  useQuery({ queryKey: [...keys.asks(), "threads"], queryFn: () => api.get("/v1/threads", { query: { asks: true, limit: 1000 } }), placeholderData: keepPreviousData });

export const useMessages = (thread: string) =>
  useQuery({ queryKey: keys.messages(thread), queryFn: () => api.get("/v1/threads/{thread}/messages", { path: { thread } }) });

/** A thread, read again now and then, and soon while it runs: why it does not move may change without an event. */
export const useThread = (thread: string) =>
  useQuery({ ...threadQuery(thread), refetchInterval: ({ state }) => (state.data?.status === "running" || state.data?.status === "queued" ? 3_000 : 15_000) });

export const threadQuery = (thread: string) => ({ queryKey: keys.thread(thread), queryFn: () => api.get("/v1/threads/{thread}", { path: { thread } }) });

export const usePostmortem = (thread: string, run: string) =>
  useQuery({
    queryKey: keys.postmortem(thread, run),
    queryFn: () => api.get("/v1/threads/{thread}/runs/{run}/postmortem", { path: { thread, run } }),
    enabled: run !== "",
    placeholderData: keepPreviousData,
  });

export const stateQuery = (thread: string, at?: number) => ({
  queryKey: keys.state(thread, at),
  queryFn: () => api.get("/v1/threads/{thread}/state", { path: { thread }, query: { at } }),
});

export const useThreadState = (thread: string, at?: number) => useQuery({ ...stateQuery(thread, at), placeholderData: keepPreviousData });

export const useFiles = (thread: string, at?: number) =>
  useQuery({
    queryKey: keys.files(thread, at),
    queryFn: () => api.get("/v1/threads/{thread}/files", { path: { thread }, query: { at } }),
    placeholderData: keepPreviousData,
  });

/**
 * A write of a person. While one is under way, mutate begins no other, or none of the same if they are
 * several, such as those of the rows of a table: a button is drawn as busy a moment after the click, and
 * a switch that bounces has clicked it twice by then.
 */
export function useWrite<R, A = void>(options: UseMutationOptions<R, Error, A>, several = false): UseMutationResult<R, Error, A> {
  const busy = useRef(new Set<string>());
  const which = (what?: A) => (several ? `${JSON.stringify(what)}` : "");
  const write = useMutation<R, Error, A>({
    ...options,
    onSettled: (...how) => {
      busy.current.delete(which(how[2]));
      return options.onSettled?.(...how);
    },
  });
  const mutate: typeof write.mutate = (...what) => {
    const one = which(what[0]);
    if (busy.current.has(one)) return;
    busy.current.add(one);
    write.mutate(...what);
  };
  return { ...write, mutate };
}

export type Control = "cancel" | "pause" | "resume" | "retry" | "again";

interface Act {
  verb: Control;
  run: string;
  reason?: string;
}

/** Controls runs. What changes because of it is read again. */
export function useControl(thread: string, told: Pick<UseMutationOptions<unknown, Error, Act>, "onSuccess" | "onError"> = {}) {
  const client = useQueryClient();
  const control = {
    ...told,
    mutationFn: ({ verb, run, reason }: Act) =>
      api.post(`/v1/threads/{thread}/runs/{run}/${verb}` as "/v1/threads/{thread}/runs/{run}/cancel", {
        path: { thread, run },
        body: reason ? { reason } : {},
      }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.thread(thread) }),
  };
  return useWrite<unknown, Act>(control, true);
}

/** Whether the caller has a scope. Admin includes the others. */
export function useCan(scope: Schemas["Me"]["scopes"][number]): boolean {
  const { data } = useMe();
  return !!data && (data.scopes.includes(scope) || data.scopes.includes("admin"));
}
