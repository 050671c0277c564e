import { address } from "./operations.js";
import { foreign, offline, Problem, type Schemas } from "./problem.js";
import type { Sender } from "./request.js";
import { type Attempts, backOff, pause, Watchdog } from "./wait.js";

/** What a connection does: it is being made, it is open, it was lost and will be made again, or there is none. */
export type Connection = "connecting" | "live" | "lost" | "ended";

/** A block of an event stream. */
export interface Block {
  id: string | null;
  event: string;
  data: string;
}

/** Splits the text of an event stream into blocks. push takes text as it comes. */
export class BlockReader {
  private rest = "";
  private id: string | null = null;
  private event = "";
  private data: string | undefined;
  /** How long the server asks readers to wait before they reconnect. */
  retry: number | undefined;

  push(text: string): Block[] {
    const blocks: Block[] = [];
    const all = this.rest + text;
    let from = 0;
    for (let end = all.indexOf("\n"); end >= 0; end = all.indexOf("\n", from)) {
      const line = all.slice(from, all[end - 1] === "\r" ? Math.max(from, end - 1) : end);
      from = end + 1;
      if (line) this.take(line);
      else {
        if (this.data !== undefined) blocks.push({ id: this.id, event: this.event || "message", data: this.data });
        this.event = "";
        this.id = null;
        this.data = undefined;
      }
    }
    this.rest = all.slice(from);
    return blocks;
  }

  private take(line: string) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.data = this.data === undefined ? value : `${this.data}\n${value}`;
    else if (field === "event") this.event = value;
    else if (field === "id") this.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
  }
}

export interface StreamOptions {
  signal?: AbortSignal;
  /** How often to reconnect; by default what the client says. */
  resume?: Attempts;
  /** Hears what the connection does, and with `lost` what does not pass by itself, such as a gateway that wants a login. */
  onConnection?: (connection: Connection, problem?: Problem) => void;
}

const silence = 40_000; // the server says something every 15 seconds
const steady = 10_000; // a connection that has lasted as long is good

/** Whether trying again may help a reader. What stands before a server that restarts may say anything. */
export const passes = ({ status, type }: Problem) => type === "gateway" || status < 400 || status === 408 || status === 429 || status >= 500;

/** The problem, if only a person may end it. */
export const lasting = (problem: Problem) => (problem.type === "gateway" || problem.type === "token" ? problem : undefined);

/**
 * Yields the blocks of an event stream, all that have come at a time, and reconnects after the last
 * one whenever the connection is lost. It ends when the server says that there is no more, with the Problem if trying again
 * does not help, and with the reason of the signal when that is aborted.
 */
export async function* blocks(sender: Sender, path: string, last: string | undefined, o: StreamOptions = {}): AsyncGenerator<Block[], void> {
  const { maxAttempts = Number.POSITIVE_INFINITY, delayMs } = { ...sender.options.resume, ...o.resume };
  let told: Connection | undefined;
  let why: Problem | undefined;
  const tell = (now: Connection, problem?: Problem) => {
    if (now !== told || problem !== why) o.onConnection?.((told = now), (why = problem));
  };
  let wait = 1000;
  let failures = 0;
  tell("connecting");
  try {
    for (;;) {
      const dog = new Watchdog(Math.min(sender.options.timeoutMs ?? silence, silence), o.signal);
      let problem = offline();
      try {
        const headers: Record<string, string> = { Accept: "text/event-stream" };
        if (last !== undefined) headers["Last-Event-ID"] = last;
        const response = await sender.fetch(path, { headers, signal: dog.signal });
        if (response.status === 204) return;
        if (!response.body || !/^text\/event-stream\b/.test(response.headers.get("Content-Type") ?? "")) {
          throw foreign();
        }
        last ??= response.headers.get("Last-Event-ID") ?? undefined;
        tell("live");
        dog.ms = silence;
        dog.heard();
        const since = Date.now();
        const reader = new BlockReader();
        const decoder = new TextDecoder();
        const body = response.body.getReader();
        for (;;) {
          const { value, done } = await body.read().catch(() => ({ value: undefined, done: true }));
          if (done || o.signal?.aborted) break;
          dog.heard();
          const found = reader.push(decoder.decode(value, { stream: true }));
          // What every stream begins with is no sign that this one works.
          if (found.some(({ event }) => event !== "open") || Date.now() - since > steady) failures = 0;
          wait = reader.retry ?? wait;
          dog.rest(); // the caller may take its time
          last = found.findLast(({ id }) => id !== null)?.id ?? last;
          if (found.length) yield found;
          dog.heard();
        }
      } catch (error) {
        if (o.signal?.aborted) throw o.signal.reason;
        if (!(error instanceof Problem) || !passes(error)) throw error;
        problem = error;
      } finally {
        dog.end();
      }
      if (o.signal?.aborted) throw o.signal.reason;
      if (failures >= maxAttempts) throw problem;
      tell("lost", lasting(problem));
      await pause(Math.max(backOff(failures++, delayMs ?? wait), problem.retryAfterMs ?? 0), o.signal);
    }
  } finally {
    tell("ended");
  }
}

/** What a step emits while it runs: see docs/events.md. */
export interface Delta {
  run: string;
  path: string;
  pass: number;
  attempt: number;
  offset: number;
  data: unknown;
}

/** The end of a run, or of what it can do without someone. */
export interface Done {
  thread: string;
  run: string;
  status: Schemas["Run"]["status"];
  output?: unknown;
  error?: string;
  spent?: { [unit: string]: number };
  asks?: Schemas["AskInfo"][];
}

export type ThreadEvent = Schemas["Event"];

/** Something that happened on a thread. One of its members is set. */
export type Update = { event: ThreadEvent; delta?: undefined; done?: undefined } | { delta: Delta; event?: undefined; done?: undefined } | { done: Done; event?: undefined; delta?: undefined };

export interface FollowOptions extends StreamOptions {
  /** Only later events: a sequence, or an id of a stream, which has the thread's life if there is one. */
  after?: number | string;
  /** Only events of this run, or of the `newest`. The last update is `done`. */
  run?: string;
  /** With a run: end also when it waits for someone. */
  until?: "wait";
  /** Whether to send live deltas; true by default. */
  deltas?: boolean;
}

/** Yields every event of a thread once, in order, and the live deltas between them. */
export async function* follow(sender: Sender, thread: string, o: FollowOptions = {}): AsyncGenerator<Update, void> {
  const { run, until } = o;
  const path = address("/v1/threads/{thread}/events", { thread }, { run, until, deltas: o.deltas === false ? "no" : undefined });
  let seq = Number.parseInt(String(o.after ?? 0), 10);
  for await (const found of blocks(sender, path, o.after === undefined ? undefined : String(o.after), o)) {
    for (const block of found) {
      const data = sender.parse(block.data) as Record<string, unknown>;
      if (block.event === "delta") yield { delta: data as unknown as Delta };
      else if (block.event === "done") {
        yield { done: data as unknown as Done };
        return;
      } else if (block.id !== null) {
        const event = data as unknown as ThreadEvent;
        if (run ? event.seq <= seq : event.seq !== seq + 1) {
          throw new Problem("order", 0, { title: "event out of order", detail: `Event ${event.seq} of thread ${thread} came after event ${seq}.` });
        }
        seq = event.seq;
        yield { event };
        if (event.kind === "moved") throw new Problem("moved", 409, { title: "moved to another store", detail: `Thread ${thread} continues in the store ${event.name}.`, thread });
      } else if (block.event === "erased") {
        const archived = data.name === "archive";
        throw new Problem(archived ? "archived" : "erased", 410, { title: `the thread was ${archived ? "archived" : "erased"}`, thread });
      } else if (block.event === "corrupt") throw new Problem("corrupt", 422, data as Partial<Schemas["Problem"]>);
      // Other events are of a later version.
    }
  }
}
