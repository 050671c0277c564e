import type { Perdure, StartOptions } from "./client.js";
import { Live, type LiveStep } from "./live.js";
import { Problem, type Schemas } from "./problem.js";
import { newId } from "./request.js";
import { type Connection, lasting, passes, type ThreadEvent } from "./stream.js";
import { type Attempts, backOff, pause } from "./wait.js";

type Rec = Schemas["Record"];
type Run = Schemas["Run"];

/** An input that was sent, until the thread shows it. */
export interface Sending {
  key: string;
  input: unknown;
  /** The run that it started; undefined until the server has said so. */
  run?: string;
}

/** A thread as a front end shows it. It is never changed: each change makes a new one. */
export interface ThreadView {
  /** The thread was read, or there is none yet. */
  readonly ready: boolean;
  /** The thread; undefined if it does not exist. */
  readonly thread?: Schemas["Thread"];
  /** The newest run of the thread. */
  readonly run?: Run;
  /** What was said, in order. */
  readonly messages: readonly Rec[];
  /** What start has sent and `messages` does not show yet. */
  readonly sending: readonly Sending[];
  /** What running steps have said so far. */
  readonly live: readonly LiveStep[];
  /** The text that an agent, or another step, is writing now. */
  readonly text: string;
  /** What the thread's runs ask people. */
  readonly asks: readonly Schemas["AskInfo"][];
  readonly connection: Connection;
  /** Why the thread is no longer followed; unless `connection` is `ended`, what keeps it from being read, which is tried on. */
  readonly problem?: Problem;
}

export const emptyView: ThreadView = { ready: false, messages: [], sending: [], live: [], text: "", asks: [], connection: "connecting" };

const over = /^(succeeded|failed|cancelled)$/;

/** The record of a message, if that is what a step returned. */
function recordOf({ kind, run, path, value }: ThreadEvent): Rec | undefined {
  const record = value as Partial<Rec> | null | undefined;
  return kind === "step" && record?.message && record.id === `${run}${path}` ? (record as Rec) : undefined;
}

/**
 * Follows a thread and keeps what a front end shows of it, while someone is subscribed. However
 * often the connection or the server is lost, it ends up with what a fresh one would read.
 */
export class ThreadStore {
  private view = emptyView;
  private messages: readonly Rec[] = [];
  private sending: readonly Sending[] = [];
  private live = new Live();
  /** The last event that `messages` has. */
  private seq = 0;
  private life = "";
  /** How many starts the server has accepted. */
  private starts = 0;
  /** What was read of the thread, until the events that it knows have come. */
  private read: Schemas["Thread"] | undefined;
  private stale = false;
  private refreshing = false;
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: AbortController | undefined;

  constructor(
    private readonly client: Perdure,
    readonly id: string,
    private readonly options: { resume?: Attempts } = {},
  ) {}

  readonly snapshot = (): ThreadView => this.view;

  /** Calls back after each change, until the function that it returns is called. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (!this.stop) this.begin();
    return () => {
      this.listeners.delete(listener);
      // React may subscribe again at once.
      setTimeout(() => {
        if (!this.listeners.size) this.end();
      });
    };
  };

  /** Starts a run on the thread. */
  readonly start = async (flow: string, input?: unknown, { key = newId(), ...options }: Omit<StartOptions, "thread"> = {}): Promise<Run> => {
    this.sending = [...this.sending, { key, input }];
    this.soon();
    try {
      const run = await this.client.start(flow, input, { ...options, key, thread: this.id });
      this.sending = this.sending.map((one) => (one.key === key ? { ...one, run: run.id } : one));
      this.starts++;
      // The thread may not have existed before.
      if (this.stop && !this.view.thread && this.view.connection === "ended") this.begin();
      return run;
    } catch (error) {
      this.sending = this.sending.filter((one) => one.key !== key);
      throw error;
    } finally {
      this.soon();
    }
  };

  /** Answers an ask of the thread. */
  readonly answer = (ask: string, answer: Schemas["AnswerAsk"]): Promise<Schemas["AskInfo"]> => this.client.answer(ask, answer).finally(() => this.refresh());

  /** Cancels a run, by default the newest. */
  readonly cancel = (run?: string, reason?: string): Promise<Run> => this.client.cancel(this.id, run, reason).finally(() => this.refresh());

  private end() {
    this.stop?.abort();
    this.stop = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Reads the thread and follows it, from the beginning again where its past has changed. */
  private begin() {
    this.end();
    const stop = new AbortController();
    this.stop = stop;
    void this.run(stop.signal).catch((problem: unknown) => {
      if (stop.signal.aborted) return;
      this.change({ ready: true, connection: "ended", problem: problem instanceof Problem ? problem : new Problem("internal", 0, { detail: String(problem) }) });
    });
  }

  private async run(signal: AbortSignal) {
    let gone: Problem | undefined;
    this.change({ connection: "connecting", problem: undefined });
    for (;;) {
      const before = this.starts;
      if (!(await this.load(signal))) {
        if (this.starts === before) break;
        continue; // it was created in the meantime
      }
      try {
        gone = undefined;
        await this.follow(`${this.seq}${this.life}`, signal);
      } catch (error) {
        if (!(error instanceof Problem) || (error.type !== "erased" && error.type !== "restored")) throw error;
        gone = error; // the id may have a new life
      }
    }
    this.change({ ready: true, thread: undefined, connection: "ended", problem: gone });
  }

  /** Reads the thread, and reports whether it exists. */
  private async load(signal: AbortSignal): Promise<boolean> {
    const { maxAttempts = Number.POSITIVE_INFINITY, delayMs = 1000 } = this.options.resume ?? {};
    this.live = new Live();
    this.read = undefined;
    for (let failures = 0; ; ) {
      try {
        const { seq, messages } = await this.client.messages(this.id, { signal });
        const thread = await this.client.thread(this.id, { signal });
        this.seq = seq;
        this.life = thread.life ? `-${thread.life}` : "";
        this.messages = messages;
        this.read = thread;
        this.soon();
        return true;
      } catch (error) {
        if (signal.aborted || !(error instanceof Problem)) throw error;
        if (error.type === "no-thread") {
          this.messages = [];
          return false;
        }
        if (!passes(error) || failures >= maxAttempts) throw error;
        this.change({ connection: "lost", problem: lasting(error) });
        await pause(backOff(failures++, delayMs), signal);
      }
    }
  }

  /** Follows the thread until its past changes. */
  private async follow(after: string, signal: AbortSignal) {
    const onConnection = (connection: Connection, problem?: Problem) => {
      if (!signal.aborted && connection !== "ended") this.change({ connection, problem });
    };
    for await (const { event, delta } of this.client.follow(this.id, { ...this.options, after, signal, onConnection })) {
      if (delta && this.live.add(delta)) this.soon();
      if (!event) continue;
      if (event.kind === "rewound" || event.kind === "forked") return;
      this.seq = event.seq;
      this.live.settle(event);
      const record = recordOf(event);
      if (record) this.messages = [...this.messages, record];
      this.soon();
      this.refresh();
    }
  }

  /** Reads the thread again, with its runs and asks. One request stands for all events that it knows. */
  private refresh() {
    this.stale = true;
    if (!this.refreshing) void this.reread().finally(() => (this.refreshing = false));
  }

  private async reread() {
    this.refreshing = true;
    for (let failures = 0; this.stale && this.stop; ) {
      const { signal } = this.stop;
      try {
        await pause(20, signal);
        this.stale = false;
        const read = await this.client.thread(this.id, { signal });
        if (signal.aborted) continue;
        if (failures) this.tell(undefined);
        failures = 0;
        this.accept(read);
      } catch (error) {
        if (signal.aborted) continue;
        if (!(error instanceof Problem) || !passes(error)) return; // the stream says why
        this.stale = true;
        this.tell(lasting(error));
        await pause(backOff(failures++, this.options.resume?.delayMs ?? 1000), signal).catch(() => {});
      }
    }
  }

  /** Says what keeps the thread from being read, unless something has ended that for good. */
  private tell(problem: Problem | undefined) {
    if (this.view.connection !== "ended") this.change({ problem });
  }

  /** Takes what was read, unless something later is known, or it is from another life. */
  private accept(read: Schemas["Thread"]) {
    const known = this.read ?? this.view.thread;
    if ((read.life ? `-${read.life}` : "") !== this.life || (known?.life === read.life && read.seq < (known?.seq ?? 0))) return;
    this.read = read;
    this.soon();
  }

  private soon() {
    this.timer ??= setTimeout(() => this.change({}), 16);
  }

  private change(some: Partial<ThreadView>) {
    clearTimeout(this.timer);
    this.timer = undefined;
    const live = this.live.show();
    const next = { ...this.view, ...some, messages: this.messages, live, text: live.findLast((step) => step.text)?.text ?? "" };
    if (this.read && this.read.seq <= this.seq) {
      next.thread = this.read;
      next.ready = true;
      this.read = undefined;
    }
    const runs = next.thread?.runs ?? [];
    next.run = runs.at(-1);
    next.asks = runs.flatMap((run) => run.asks ?? []);
    this.sending = this.sending.filter(({ run }) => !run || !(this.messages.some(({ id }) => id.startsWith(`${run}/`)) || runs.some((one) => one.id === run && over.test(one.status))));
    next.sending = this.sending;
    this.view = next;
    for (const tell of [...this.listeners]) tell();
  }
}
