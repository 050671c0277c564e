import { type Connection, Live, type LiveStep } from "@perdure/client";
import { useMemo, useSyncExternalStore } from "react";
import { Problem, perdure } from "@/api/client";
import { keys, queryClient } from "@/api/queries";
import type { Event } from "@/lib/timeline";

export interface Log {
  events: Event[];
  live: LiveStep[];
  state: Connection;
  /** All events up to when the page was opened are there. */
  caughtUp: boolean;
  problem?: Problem;
}

/** Follows the events of one thread and keeps them. */
class ThreadLog {
  private log: Log = { events: [], live: [], state: "connecting", caughtUp: false };
  private events: Event[] = [];
  private deltas = new Live();
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: AbortController | undefined;

  constructor(private readonly thread: string) {}

  readonly snapshot = () => this.log;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.begin();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.end();
    };
  };

  private begin() {
    this.end();
    this.events = [];
    this.deltas = new Live();
    const stop = new AbortController();
    this.stop = stop;
    void this.follow(stop.signal).catch((problem: unknown) => {
      if (stop.signal.aborted) return;
      const type = problem instanceof Problem ? problem.type : "";
      if (type === "restored" || type === "erased") {
        // What was followed is gone; the id may have a new life.
        this.begin();
      } else this.change({ problem: problem instanceof Problem && type !== "moved" ? problem : undefined, state: "live", caughtUp: true });
    });
  }

  private async follow(signal: AbortSignal) {
    const onConnection = (state: Connection) => {
      if (!signal.aborted && state !== "ended") this.change({ state });
    };
    for await (const { event, delta } of perdure.follow(this.thread, { signal, onConnection })) {
      if (delta && this.deltas.add(delta)) this.soon(60);
      if (!event) continue;
      this.events.push(event);
      this.deltas.settle(event);
      this.soon(Math.max(30, this.events.length / 40)); // what is computed from all events takes longer if there are many
    }
  }

  private end() {
    this.stop?.abort();
    this.stop = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private soon(ms: number) {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const grew = this.events.length !== this.log.events.length;
      this.change({ events: grew ? [...this.events] : this.log.events, live: this.deltas.show(), caughtUp: true });
      if (grew) void queryClient.invalidateQueries({ queryKey: keys.thread(this.thread) });
    }, ms);
  }

  private change(some: Partial<Log>) {
    this.log = { ...this.log, ...some };
    for (const tell of this.listeners) tell();
  }
}

export function useThreadLog(thread: string): Log {
  const log = useMemo(() => new ThreadLog(thread), [thread]);
  return useSyncExternalStore(log.subscribe, log.snapshot);
}
