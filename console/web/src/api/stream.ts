import { offline, Problem, problemOf } from "./client";

export type StreamState = "connecting" | "live" | "lost";

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
  private data: string[] = [];
  retry = 1000;

  push(text: string): Block[] {
    const blocks: Block[] = [];
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length) blocks.push({ id: this.id, event: this.event || "message", data: this.data.join("\n") });
        this.event = "";
        this.id = null;
        this.data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") this.data.push(value);
      else if (field === "event") this.event = value;
      else if (field === "id") this.id = value;
      else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    }
    return blocks;
  }
}

export interface Follow {
  url: string;
  /** The id after which to begin. */
  last?: string;
  onBlock(block: Block): void;
  onState?(state: StreamState): void;
  /** The stream has ended for good: with an error that does not pass, or because there is no more. */
  onEnd?(problem: Problem | null): void;
  fetch?: typeof fetch;
  wait?(ms: number, signal: AbortSignal): Promise<void>;
}

const silence = 40_000; // the server says something every 15 seconds

/**
 * Follows an event stream until it is stopped, however often the connection is lost. Returns a
 * function that stops it.
 */
export function follow(f: Follow): () => void {
  const stop = new AbortController();
  void run(f, stop.signal);
  return () => stop.abort();
}

async function run(f: Follow, stop: AbortSignal) {
  const get = f.fetch ?? fetch;
  const wait = f.wait ?? pause;
  let last = f.last;
  let failures = 0;
  let retry = 1000;
  let state: StreamState | undefined;
  const tell = (now: StreamState) => {
    if (now !== state) f.onState?.((state = now));
  };
  tell("connecting");
  while (!stop.aborted) {
    const connection = new AbortController();
    const cut = () => connection.abort();
    stop.addEventListener("abort", cut);
    let quiet: ReturnType<typeof setTimeout> | undefined;
    const heard = () => {
      clearTimeout(quiet);
      quiet = setTimeout(cut, silence);
    };
    try {
      heard();
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (last !== undefined) headers["Last-Event-ID"] = last;
      const response = await get(f.url, { headers, credentials: "same-origin", signal: connection.signal, cache: "no-store" });
      if (response.status === 204) return f.onEnd?.(null);
      if (!response.ok) {
        const problem = await problemOf(response);
        if (problem.status < 429 && problem.status >= 400) return f.onEnd?.(problem);
        throw problem;
      }
      if (!response.body) throw offline();
      failures = 0;
      tell("live");
      const blocks = new BlockReader();
      const text = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
      for (;;) {
        const { value, done } = await text.read();
        if (done || stop.aborted) break;
        heard();
        for (const block of blocks.push(value)) {
          if (block.id !== null) last = block.id;
          f.onBlock(block);
        }
        retry = blocks.retry;
      }
    } catch {
      // The next connection goes on after the last event.
    } finally {
      clearTimeout(quiet);
      stop.removeEventListener("abort", cut);
    }
    if (stop.aborted) return;
    failures++;
    tell("lost");
    await wait(Math.min(retry * 2 ** Math.min(failures - 1, 4), 15_000), stop);
  }
}

/** Waits, but not longer than until the network is back or the page is seen again. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    }
    window.addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}
