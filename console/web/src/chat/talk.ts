import { Live, type ThreadEvent } from "@perdure/client";
import { useMemo, useSyncExternalStore } from "react";
import { api, Problem, perdure } from "@/api/client";
import { keys, queryClient } from "@/api/queries";
import { backOff } from "@/lib/lost";
import { conversation, isReply, type Rec, recordOf, type Said } from "./said";

export interface Talk {
  said: Said[];
  /** What there was when the page was opened is there. */
  ready: boolean;
  problem?: Problem;
}

/** A message that no agent has read yet. */
interface Waiting {
  run: string;
  value: unknown;
}

/** Follows the conversation of one thread: what is recorded, what is being written, and what waits. */
class TalkLog {
  private talk: Talk = { said: [], ready: false };
  private records: Rec[] = [];
  private waiting: Waiting[] = [];
  private deltas = new Live();
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: AbortController | undefined;
  private failures = 0; // in a row
  private life = 0; // grows with each beginning, so that what belongs to an earlier one is ignored

  constructor(private readonly thread: string) {}

  readonly snapshot = () => this.talk;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    if (this.listeners.size === 1) void this.begin();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.end();
    };
  };

  private end() {
    this.life++;
    this.stop?.abort();
    this.stop = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Reads what is recorded, and follows what comes after it. */
  private async begin() {
    this.end();
    const life = this.life;
    const path = { thread: this.thread };
    try {
      const thread = await api.get("/v1/threads/{thread}", { path });
      const list = await api.get("/v1/threads/{thread}/messages", { path });
      const queued = (thread.runs ?? []).filter((run) => run.status === "queued" && !list.messages.some((one) => one.id.startsWith(`${run.id}/`)));
      const suffix = thread.life ? `-${thread.life}` : "";
      const pages = await Promise.all(queued.map((run) => api.get("/v1/threads/{thread}/events", { path, query: { after: `${run.seq - 1}${suffix}`, limit: 1 } })));
      if (life !== this.life) return;
      this.records = list.messages;
      this.waiting = pages.flatMap((page) => page?.events ?? []).map((event) => ({ run: event.run ?? "", value: event.value }));
      this.deltas = new Live();
      this.failures = 0;
      this.change({ ready: true, problem: undefined });
      this.stop = new AbortController();
      void this.follow(`${list.seq}${suffix}`, this.stop.signal).catch((error: unknown) => {
        if (life !== this.life || !(error instanceof Problem)) return;
        if (error.type === "restored") void this.begin();
        else this.change({ problem: error.type === "moved" ? undefined : error });
      });
    } catch (error) {
      if (life !== this.life) return;
      if (error instanceof Problem && (error.type === "gateway" || error.status === 0 || error.status >= 500)) {
        this.change({ problem: error.type === "gateway" ? error : undefined });
        this.timer = setTimeout(() => void this.begin(), backOff(this.failures++));
        return;
      }
      this.change({ problem: error instanceof Problem ? error : new Problem("internal", 0, { title: "The conversation cannot be read", detail: String(error) }) });
    }
  }

  private async follow(after: string, signal: AbortSignal) {
    for await (const { event, delta } of perdure.follow(this.thread, { after, signal })) {
      if (signal.aborted) return;
      if (delta && this.deltas.add(delta)) this.soon();
      if (event) this.take(event);
    }
  }

  private take(event: ThreadEvent) {
    if (event.kind === "rewound" || event.kind === "forked") {
      void this.begin(); // what was said may not have been said
      return;
    }
    this.deltas.settle(event);
    const record = event.kind === "step" ? recordOf(event) : undefined;
    if (record) this.records = [...this.records, record];
    if (event.kind === "queued") this.waiting = [...this.waiting, { run: event.run ?? "", value: event.value }];
    if (record?.message.role === "user" || event.kind === "ended") this.waiting = this.waiting.filter((one) => one.run !== event.run);
    if (event.kind === "took" && event.value !== undefined) {
      const taken = JSON.stringify(event.value);
      const at = this.waiting.findIndex((one) => JSON.stringify(one.value) === taken);
      if (at >= 0) this.waiting = this.waiting.toSpliced(at, 1);
    }
    this.soon();
    void queryClient.invalidateQueries({ queryKey: keys.thread(this.thread) });
  }

  private soon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.change({});
    }, 30);
  }

  private change(some: Partial<Talk>) {
    const said = conversation(
      this.records,
      this.deltas.show().filter(isReply),
    );
    for (const one of this.waiting) {
      if (typeof one.value === "string") said.push({ id: `waits ${one.run}`, role: "user", agent: "", parts: [{ kind: "text", text: one.value }], waits: true });
    }
    this.talk = { ...this.talk, ...some, said };
    for (const tell of this.listeners) tell();
  }
}

/** The conversation of a thread, live. */
export function useTalk(thread: string): Talk {
  const log = useMemo(() => new TalkLog(thread), [thread]);
  return useSyncExternalStore(log.subscribe, log.snapshot);
}
