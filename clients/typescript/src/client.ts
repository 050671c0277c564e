import type { Input, Output, Route } from "./operations.js";
import { address } from "./operations.js";
import type { Schemas } from "./problem.js";
import { type Call, newId, type Options, Sender } from "./request.js";
import { blocks, type FollowOptions, follow, type StreamOptions, type Update } from "./stream.js";

/** What a start takes besides the flow and its input. */
export interface StartOptions extends Omit<Schemas["Start"], "flow" | "input"> {
  /** The thread on which to start it, which is created on first use. By default it is a new one. */
  thread?: string;
  /** The same key gives the same run; by default it is a new one. */
  key?: string;
  signal?: AbortSignal;
}

/** A change in the list of threads. After `open`, read the list again. */
export type News = { kind: "open" } | { kind: "thread"; thread: Schemas["Summary"] } | { kind: "gone"; thread: string };

type Signal = { signal?: AbortSignal };

/** A client of a Perdure server. */
export class Perdure {
  private readonly sender: Sender;

  constructor(options: Options = {}) {
    this.sender = new Sender(options);
  }

  /**
   * Calls any operation of the API: request("GET /v1/threads/{thread}", { path: { thread } }).
   * Its result is the JSON of the response, or the Response itself if that is something else.
   *
   * Starts, creations and signals get an idempotency key unless they have one. So they, reads and
   * answers are repeated if their response is lost, and still have one effect.
   */
  request<R extends Route>(route: R, ...input: object extends Input<R> ? [input?: Input<R>] : [input: Input<R>]): Promise<Output<R>>;
  request(route: string, input?: Call): Promise<unknown> {
    return this.sender.call(route, input);
  }

  /** Returns the address of a read, for links and images of pages that use cookies. */
  url<R extends Extract<Route, `GET ${string}`>>(route: R, input: Pick<Input<R>, "path" | "query" & keyof Input<R>>): string {
    const { path, query } = input as Call;
    return this.sender.url(address(route.slice(4), path, query));
  }

  /** Starts a run and returns it at once. */
  start(flow: string, input?: unknown, { thread, key, signal, ...more }: StartOptions = {}): Promise<Schemas["Run"]> {
    const body = { flow, input, ...more };
    const headers = { "Idempotency-Key": key ?? newId() };
    return thread === undefined ? this.request("POST /v1/runs", { body, headers, signal }) : this.request("POST /v1/threads/{thread}/runs", { path: { thread }, body, headers, signal });
  }

  /** Waits until a run has ended, or cannot continue without someone. With `end` it waits for the end. */
  async wait(thread: string, run = "newest", { end, signal }: Signal & { end?: boolean } = {}): Promise<Schemas["Run"]> {
    for (;;) {
      const waited = await this.request("GET /v1/threads/{thread}/runs/{run}/wait", { path: { thread, run }, query: { end }, signal });
      if (waited.over) return waited.run;
      run = waited.run.id;
    }
  }

  /**
   * Yields every event of a thread once, in order, and the live deltas between them, however often
   * the connection or the server is lost. See Live for how to join deltas.
   */
  follow(thread: string, options?: FollowOptions): AsyncGenerator<Update, void> {
    return follow(this.sender, thread, options);
  }

  /** Yields changes in the list of threads. */
  async *watch({ user, ...options }: StreamOptions & { user?: string } = {}): AsyncGenerator<News, void> {
    for await (const found of blocks(this.sender, address("/v1/events", undefined, { user }), undefined, options)) {
      for (const { event, data } of found) {
        const { thread, gone } = this.sender.parse(data) as Schemas["News"];
        if (event === "open") yield { kind: "open" };
        else if (thread) yield { kind: "thread", thread };
        else if (gone) yield { kind: "gone", thread: gone };
      }
    }
  }

  /** Gets a thread with its newest runs. */
  thread(thread: string, options?: Signal): Promise<Schemas["Thread"]> {
    return this.request("GET /v1/threads/{thread}", { path: { thread }, ...options });
  }

  /** Lists threads, page by page. */
  async *threads(query: Input<"GET /v1/threads">["query"] = {}, options?: Signal): AsyncGenerator<Schemas["Summary"], void> {
    for (let after = query.after; ; ) {
      const page = await this.request("GET /v1/threads", { query: { ...query, after }, ...options });
      yield* page.threads;
      if (!page.next) return;
      after = page.next;
    }
  }

  /** Gets what was said in a thread. */
  messages(thread: string, options?: Signal): Promise<Schemas["MessageList"]> {
    return this.request("GET /v1/threads/{thread}/messages", { path: { thread }, ...options });
  }

  /** Answers an ask. The first answer wins; repeating it changes nothing. */
  answer(ask: string, answer: Schemas["AnswerAsk"], options?: Signal): Promise<Schemas["AskInfo"]> {
    return this.request("POST /v1/asks/{ask}/answer", { path: { ask }, body: answer, ...options });
  }

  /** Cancels a run. */
  cancel(thread: string, run = "newest", reason?: string, options?: Signal): Promise<Schemas["Run"]> {
    return this.request("POST /v1/threads/{thread}/runs/{run}/cancel", { path: { thread, run }, body: { reason }, ...options });
  }

  /** Sends a named event to a thread: with a key, only once. */
  signal(thread: string, name: string, value?: unknown, { key, ...more }: Signal & { key?: string } = {}): Promise<undefined> {
    const headers = key === undefined ? undefined : { "Idempotency-Key": key };
    return this.request("POST /v1/threads/{thread}/signals/{name}", { path: { thread, name }, body: { value }, headers, ...more });
  }

  /** Creates a thread that shares the past of another. */
  fork(thread: string, fork: Schemas["ForkThread"] = {}, options?: Signal): Promise<Schemas["Fork"]> {
    return this.request("POST /v1/threads/{thread}/fork", { path: { thread }, body: { ...fork, as: fork.as ?? newId() }, repeat: true, ...options });
  }

  /** Uploads a file, whose id a start, an answer or a signal can attach. */
  upload(file: Blob, name = file instanceof File ? file.name : undefined, options?: Signal): Promise<Schemas["Upload"]> {
    return this.request("POST /v1/uploads", { query: { name }, body: file, ...options });
  }
}
