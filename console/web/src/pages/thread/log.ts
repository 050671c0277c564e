import { useMemo, useSyncExternalStore } from "react";
import { address, type Problem } from "@/api/client";
import { keys, queryClient } from "@/api/queries";
import { follow, type StreamState } from "@/api/stream";
import { type Delta, Deltas, type LiveStep } from "@/lib/deltas";
import type { Event } from "@/lib/timeline";

export interface Log {
  events: Event[];
  live: LiveStep[];
  state: StreamState;
  /** All events up to when the page was opened are there. */
  caughtUp: boolean;
  problem?: Problem;
}

/** Follows the events of one thread and keeps them. */
class ThreadLog {
  private log: Log = { events: [], live: [], state: "connecting", caughtUp: false };
  private events: Event[] = [];
  private deltas = new Deltas();
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: (() => void) | undefined;

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
    this.events = [];
    this.deltas = new Deltas();
    this.stop = follow({
      url: address("/v1/threads/{thread}/events", { thread: this.thread }),
      onState: (state) => this.change({ state }),
      onEnd: (problem) => {
        if (problem?.type === "restored" || problem?.type === "erased") {
          // What was followed is gone; the id may have a new life.
          this.begin();
        } else this.change({ problem: problem ?? undefined, state: "live", caughtUp: true });
      },
      onBlock: (block) => {
        const data = JSON.parse(block.data) as unknown;
        if (block.event === "delta") {
          if (this.deltas.add(data as Delta)) this.soon(60);
          return;
        }
        const event = data as Event;
        if (typeof event.seq !== "number") return;
        this.events.push(event);
        this.deltas.settle(event);
        if (event.run && (event.kind === "ended" || event.kind === "suspended")) this.deltas.settleRun(event.run);
        this.soon(Math.max(30, this.events.length / 40)); // what is computed from all events takes longer if there are many
      },
    });
  }

  private end() {
    this.stop?.();
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private soon(ms: number) {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const grew = this.events.length !== this.log.events.length;
      this.change({ events: grew ? [...this.events] : this.log.events, live: this.deltas.live().map((step) => ({ ...step })), caughtUp: true });
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
