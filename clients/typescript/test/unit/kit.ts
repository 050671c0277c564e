// A server in memory, which tests tell what to answer.
import type { ThreadEvent } from "../../src/index.js";

export interface Seen {
  method: string;
  path: string;
  /** By their names in lower case. */
  headers: Record<string, string>;
  body: unknown;
  credentials?: string;
  signal?: AbortSignal | null;
}

type Answer = Response | Error | Promise<Response>;

/** A fetch that records requests and answers with what `answer` returns. An Error stands for a lost connection. */
export function fake(answer: (seen: Seen, nth: number) => Answer) {
  const seen: Seen[] = [];
  const fetch = (async (to: string, init: RequestInit) => {
    const { pathname, search } = new URL(to);
    const one = { method: init.method ?? "GET", path: pathname + search, headers: Object.fromEntries([...new Headers(init.headers)].map(([name, text]) => [name.toLowerCase(), text])), body: init.body, credentials: init.credentials, signal: init.signal };
    seen.push(one);
    const got = await answer(one, seen.length);
    init.signal?.throwIfAborted();
    if (got instanceof Error) throw got;
    return got;
  }) as typeof globalThis.fetch;
  return { fetch, seen };
}

export const lost = () => new TypeError("fetch failed");

export const json = (value: unknown, status = 200, headers: Record<string, string> = {}) => new Response(JSON.stringify(value), { status, headers: { "Content-Type": "application/json", ...headers } });

export const problem = (type: string, status: number, headers: Record<string, string> = {}) =>
  new Response(JSON.stringify({ type: `urn:perdure:problem:${type}`, title: type, status, detail: `it is ${type}` }), { status, headers: { "Content-Type": "application/problem+json", ...headers } });

/** An event stream that sends texts and then ends, or stays open until `end` is called. */
export function stream(...texts: string[]) {
  let controller: ReadableStreamDefaultController<Uint8Array>;
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
  const send = (text: string) => controller.enqueue(encoder.encode(text));
  for (const text of texts) send(text);
  return {
    response: new Response(body, { headers: { "Content-Type": "text/event-stream" } }),
    send,
    end: () => controller.close(),
    cut: () => controller.error(lost()),
  };
}

/** A stream that ends after these texts. */
export function brief(...texts: string[]): Response {
  const one = stream("retry: 1\n", ...texts);
  one.end();
  return one.response;
}

export const event = (seq: number, kind = "step", more: Partial<ThreadEvent> = {}) =>
  `id: ${seq}\nevent: ${kind}\ndata: ${JSON.stringify({ thread: "t", seq, kind, time: "2026-01-02T15:04:05Z", run: "r", ...more })}\n\n`;

export const delta = (offset: number, data: unknown, more: object = {}) => `event: delta\ndata: ${JSON.stringify({ run: "r", path: "/a/reply", pass: 1, attempt: 1, offset, data, ...more })}\n\n`;
