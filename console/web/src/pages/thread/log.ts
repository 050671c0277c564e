import { Live, type LiveStep } from "@perdure/client";
import { useMemo, useSyncExternalStore } from "react";
import { Problem, perdure, type Schemas } from "@/api/client";
import { keys, queryClient, threadQuery } from "@/api/queries";
import type { Event } from "@/lib/timeline";

export interface Log {
  events: Event[];
  live: LiveStep[];
  /** There is something to show, or will be nothing. */
  begun: boolean;
  problem?: Problem;
}

/** Whether something that was read of a thread may be from before an event. */
const olderThan = (seq: number, data: unknown) => !((data as { seq?: number } | undefined)?.seq! >= seq);

const atOnce = 16; // ms that events are read before the page can do something else

/** Lets the page draw, and do what else it has to. */
const othersFirst = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(null);
  });

const unclaimed = 30_000; // ms that a log is followed without a reader

/** Follows the events of one thread and keeps them. */
class ThreadLog {
  private log: Log = { events: [], live: [], begun: false };
  private events: Event[] = [];
  private deltas = new Live();
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: AbortController | undefined;
  /** The last event there was when the page was opened, once that is known. */
  private target: number | undefined;
  private caughtUp = false;

  constructor(readonly thread: string) {}

  readonly snapshot = () => this.log;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    if (!this.stop) this.begin();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.end();
    };
  };

  /** Follows the thread before anyone reads. */
  beginEarly() {
    this.begin();
    setTimeout(() => this.listeners.size || this.end(), unclaimed);
  }

  private begin() {
    this.end();
    this.events = [];
    this.deltas = new Live();
    this.target = undefined;
    this.caughtUp = false;
    const stop = new AbortController();
    this.stop = stop;
    void this.aim(stop.signal);
    void this.follow(stop.signal).catch((problem: unknown) => {
      if (stop.signal.aborted) return;
      if (!this.listeners.size) return this.end(); // the first reader tries again
      const type = problem instanceof Problem ? problem.type : "";
      if (type === "restored" || type === "erased") {
        // What was followed is gone; the id may have a new life, whose sequences begin anew.
        void queryClient.invalidateQueries({ queryKey: keys.thread(this.thread) });
        this.begin();
      } else this.change({ problem: problem instanceof Problem && type !== "moved" ? problem : undefined, begun: true });
    });
  }

  /** Finds out how far the past goes. */
  private async aim(signal: AbortSignal) {
    const thread = await queryClient.fetchQuery(threadQuery(this.thread)).catch(() => undefined);
    if (signal.aborted || !thread) return;
    this.target = thread.seq;
    if ((this.events.at(-1)?.seq ?? 0) >= thread.seq) this.show();
  }

  private async follow(signal: AbortSignal) {
    let pause = performance.now() + atOnce;
    for await (const { event, delta } of perdure.follow(this.thread, { signal })) {
      if (signal.aborted) return;
      if (delta && this.deltas.add(delta)) this.soon(60);
      if (!event) continue;
      this.events.push(event);
      this.deltas.settle(event);
      // What is computed from all events takes longer if there are many: those of a long past are
      // shown when they are complete or that takes too long.
      if (this.caughtUp) this.soon(Math.max(30, this.events.length / 40));
      else if (event.seq === this.target) this.show();
      else this.soon(this.log.begun ? 1000 : this.target === undefined ? 30 : 300);
      if (performance.now() > pause) {
        await othersFirst();
        pause = performance.now() + atOnce;
      }
    }
  }

  private end() {
    this.stop?.abort();
    this.stop = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private soon(ms: number) {
    this.timer ??= setTimeout(() => this.show(), ms);
  }

  private show() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const grew = this.events.length !== this.log.events.length;
    this.change({ events: grew ? [...this.events] : this.log.events, live: this.deltas.show(), begun: true });
    const seq = this.events.at(-1)?.seq ?? 0;
    this.target ??= queryClient.getQueryData<Schemas["Thread"]>(keys.thread(this.thread))?.seq;
    this.caughtUp ||= this.target !== undefined && seq >= this.target;
    if (grew && this.caughtUp) void queryClient.invalidateQueries({ queryKey: keys.thread(this.thread), predicate: ({ state }) => olderThan(seq, state.data) });
  }

  private change(some: Partial<Log>) {
    this.log = { ...this.log, ...some };
    for (const tell of this.listeners) tell();
  }
}

let early: ThreadLog | undefined;

/** Asks for the events of a thread whose page is about to be shown. */
export function followEarly(thread: string) {
  early = new ThreadLog(thread);
  early.beginEarly();
}

function logOf(thread: string): ThreadLog {
  const log = early?.thread === thread ? early : new ThreadLog(thread);
  early = undefined;
  return log;
}

export function useThreadLog(thread: string): Log {
  const log = useMemo(() => logOf(thread), [thread]);
  return useSyncExternalStore(log.subscribe, log.snapshot);
}
