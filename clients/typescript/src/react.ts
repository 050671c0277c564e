/** React hooks for runs and threads. */
import { createContext, createElement, type ReactNode, useCallback, useContext, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import type { Perdure, StartOptions } from "./client.js";
import type { Schemas } from "./problem.js";
import { emptyView, ThreadStore, type ThreadView } from "./store.js";
import type { Attempts } from "./wait.js";

const Context = createContext<Perdure | undefined>(undefined);

/** Gives the hooks of the components in it a client. */
export function PerdureProvider({ client, children }: { client: Perdure; children?: ReactNode }) {
  return createElement(Context.Provider, { value: client }, children);
}

/** Returns the client of the PerdureProvider. */
export function useClient(client?: Perdure): Perdure {
  const given = useContext(Context);
  const used = client ?? given;
  if (!used) throw new Error("perdure: hooks need a client: give one as an option, or put the component into a PerdureProvider");
  return used;
}

// Components that show the same thread share a stream, and see the same.
const stores = new WeakMap<Perdure, Map<string, WeakRef<ThreadStore>>>();

function storeOf(client: Perdure, id: string, resume?: Attempts): ThreadStore {
  let all = stores.get(client);
  if (!all) stores.set(client, (all = new Map()));
  const key = JSON.stringify([id, resume?.maxAttempts, resume?.delayMs]);
  let store = all.get(key)?.deref();
  if (!store) {
    store = new ThreadStore(client, id, { resume });
    for (const [old, ref] of all) if (!ref.deref()) all.delete(old);
    all.set(key, new WeakRef(store));
  }
  return store;
}

const nothing = () => () => {};
const empty = () => emptyView;
const unused: ThreadView = { ...emptyView, ready: true, connection: "ended" };
const none = () => unused;

export interface HookOptions {
  /** The client, if there is no PerdureProvider. */
  client?: Perdure;
  /** How often to reconnect without receiving anything: without end by default. */
  resume?: Attempts;
}

/** What all hooks return: the view of a thread, and what can be done. */
export interface ThreadControl extends ThreadView {
  /** Answers an ask. */
  answer(ask: string, answer: Schemas["AnswerAsk"]): Promise<Schemas["AskInfo"]>;
  /** Cancels a run, by default the newest. */
  cancel(run?: string, reason?: string): Promise<Schemas["Run"]>;
}

export interface UseThread extends ThreadControl {
  /** Starts a run of a flow on the thread, which is created if it does not exist. */
  start(flow: string, input?: unknown, options?: Omit<StartOptions, "thread">): Promise<Schemas["Run"]>;
}

const noThread = () => Promise.reject(new Error("perdure: there is no thread yet"));

function useStore(client: Perdure, id: string | undefined, resume?: Attempts): ThreadStore | undefined {
  return useMemo(() => (id === undefined ? undefined : storeOf(client, id, resume)), [client, id, resume?.maxAttempts, resume?.delayMs]);
}

const useView = (store: ThreadStore | undefined) => useSyncExternalStore(store?.subscribe ?? nothing, store?.snapshot ?? none, store ? empty : none);

/**
 * Shows a thread, live: what was said, what is being written, what is asked. The thread need not
 * exist yet; undefined stands for none.
 */
export function useThread(id: string | undefined, options: HookOptions = {}): UseThread {
  const store = useStore(useClient(options.client), id, options.resume);
  const view = useView(store);
  return useMemo(() => ({ ...view, start: store?.start ?? noThread, answer: store?.answer ?? noThread, cancel: store?.cancel ?? noThread }), [view, store]);
}

export interface UseRunOptions extends HookOptions {
  /** The thread whose newest run to show, and on which to start the next. By default the first start makes one. */
  thread?: string | undefined;
  /** Hears which thread the first start has made: keep it, to find it again after a refresh. */
  onThread?: (id: string) => void;
}

export interface UseRun extends ThreadControl {
  /** The id of the thread, once there is one. */
  threadId?: string;
  /** The status of the newest run; "idle" if there is none. */
  status: Schemas["Run"]["status"];
  /** What the run returned. */
  output?: unknown;
  /** Why it failed. */
  error?: string;
  /** A start is on its way to the server. */
  starting: boolean;
  /** Starts a run of the flow. */
  start(input?: unknown, options?: Omit<StartOptions, "thread">): Promise<Schemas["Run"]>;
}

/** Starts runs of a flow, and shows the newest one live. */
export function useRun(flow: string, { thread, onThread, ...options }: UseRunOptions = {}): UseRun {
  const client = useClient(options.client);
  const [made, setMade] = useState<string>();
  const [starting, setStarting] = useState(0);
  const making = useRef<Promise<string>>(undefined);
  if (thread !== undefined && made !== undefined) setMade(undefined);
  useEffect(() => {
    if (thread !== undefined) making.current = undefined;
  }, [thread]);
  const threadId = thread ?? made;
  const store = useStore(client, threadId, options.resume);
  const view = useView(store);
  const start = useCallback(
    async (input?: unknown, more?: Omit<StartOptions, "thread">) => {
      setStarting((many) => many + 1);
      try {
        if (store) return await store.start(flow, input, more);
        // Others wait for the thread that the first one makes, unless it fails.
        while (making.current) {
          const before = making.current;
          const made = await before.catch(() => undefined);
          if (made !== undefined) return await client.start(flow, input, { ...more, thread: made });
          if (making.current === before) making.current = undefined;
        }
        const first = client.start(flow, input, more);
        const mine = first.then((run) => run.thread);
        making.current = mine;
        mine.catch(() => {
          if (making.current === mine) making.current = undefined;
        });
        const run = await first;
        if (making.current === mine) {
          setMade(run.thread);
          onThread?.(run.thread);
        }
        return run;
      } finally {
        setStarting((many) => many - 1);
      }
    },
    [client, store, flow, onThread],
  );
  return useMemo(() => {
    const { status = "idle" as const, output, error } = view.run ?? {};
    return { ...view, threadId, status, output, error, starting: starting > 0, start, answer: store?.answer ?? noThread, cancel: store?.cancel ?? noThread };
  }, [view, threadId, starting, start, store]);
}
