import { address, type Bytes, canRepeat, isRaw, isSilent, type Settings, takesKey } from "./operations.js";
import { foreign, offline, Problem, problemOf } from "./problem.js";
import { type Attempts, backOff, pause, Watchdog } from "./wait.js";

export interface Options {
  /** The address of the server, such as "https://perdure.example". By default it is the origin of the page. */
  url?: string | undefined;
  /**
   * A token, or a function that gets one. The function is called before the first request, and
   * again when the server refuses what it returned.
   */
  token?: string | (() => string | Promise<string>) | undefined;
  /** Use the cookie that POST /v1/session has set. It works on pages of the server's own origin. */
  cookies?: boolean;
  /** How often to repeat requests that were lost, if that changes nothing more: 6 times, at first after 200 ms. */
  retry?: Attempts;
  /**
   * How often streams reconnect without receiving anything: without end, at first after the time
   * that the server asks for, which is usually a second.
   */
  resume?: Attempts;
  /** How long to wait for a response: 90 seconds, and 40 for an event stream. */
  timeoutMs?: number;
  /** Headers to send with every request. */
  headers?: Record<string, string>;
  fetch?: typeof fetch;
  /** Reads JSON, in place of JSON.parse, which rounds integers beyond 2^53. */
  parse?: (text: string) => unknown;
}

/** A request, before its types. */
export interface Call extends Settings {
  path?: object;
  query?: object;
  headers?: object;
  body?: unknown;
}

const isBytes = (body: unknown): body is Bytes => body instanceof Blob || body instanceof ArrayBuffer || ArrayBuffer.isView(body) || body instanceof ReadableStream;

/** Returns a header as bytes of UTF-8, as other clients send it. */
const carried = (name: string, text: string) => {
  if (text.trim() !== text || /\p{Cc}/u.test(text)) throw new TypeError(`perdure: a header cannot carry ${JSON.stringify(text)} as ${name}`);
  return String.fromCharCode(...new TextEncoder().encode(text));
};

/** Returns a new id, also on pages without HTTPS, which have no crypto.randomUUID. */
export const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Sends requests in the name of someone. */
export class Sender {
  private readonly base: string;
  private token: Promise<string> | undefined;

  constructor(readonly options: Options) {
    this.base = (options.url ?? globalThis.location?.origin ?? "").replace(/\/+$/, "");
    if (!this.base) throw new TypeError("perdure: the option url is missing");
    if (!/^https?:\/\//.test(this.base) && !(this.base.startsWith("/") && globalThis.location)) throw new TypeError(`perdure: ${this.base} is not the address of a server`);
    new URL(this.base, globalThis.location?.href);
  }

  url(path: string): string {
    return this.base + path;
  }

  parse(text: string): unknown {
    try {
      return (this.options.parse ?? JSON.parse)(text);
    } catch (error) {
      throw foreign(502, `It is no JSON: ${error}`);
    }
  }

  /** Fetches once, or twice if the token has to be renewed. A response that is not a success is a Problem. */
  async fetch(path: string, init: RequestInit): Promise<Response> {
    const { token, cookies, headers, fetch = globalThis.fetch } = this.options;
    for (let renewed = false; ; renewed = true) {
      const used = token === undefined ? undefined : (this.token ??= Promise.resolve().then(() => (typeof token === "string" ? token : token())));
      const given = await used?.catch((error: unknown) => {
        this.forget(used);
        throw new Problem("token", 0, { title: "no token", detail: String(error) });
      });
      const text = given?.trim();
      const all = new Headers(headers);
      new Headers(init.headers).forEach((value, name) => all.set(name, value));
      if (/[^ -~\x80-\xff]/.test(text ?? "")) {
        this.forget(used);
        throw new TypeError("perdure: a header cannot carry the token"); // without it: it is secret
      }
      if (text !== undefined) all.set("Authorization", `Bearer ${text}`);
      if (cookies) all.set("Perdure-Console", "1");
      let response: Response;
      try {
        response = await fetch(this.url(path), { cache: "no-store", credentials: cookies ? "same-origin" : "omit", ...init, headers: all });
      } catch {
        throw offline();
      }
      if (response.ok) return response;
      if (response.status !== 401 || renewed || typeof token !== "function" || init.body instanceof ReadableStream) throw await problemOf(response);
      await response.body?.cancel();
      this.forget(used);
    }
  }

  private forget(used: Promise<string> | undefined) {
    if (this.token === used) this.token = undefined;
  }

  /** Calls an operation. It is repeated if its answer was lost and repeating it changes nothing more. */
  async call(route: string, input: Call = {}): Promise<unknown> {
    const [method = "", template = ""] = route.split(" ");
    const to = address(template, input.path, input.query);
    const headers = new Headers({ Accept: "application/json" });
    for (const [name, text] of Object.entries(input.headers ?? {})) if (text !== undefined) headers.set(name, carried(name, String(text)));
    const { signal } = input;
    let body: BodyInit | undefined;
    if (isBytes(input.body)) {
      body = input.body;
      if (!headers.has("Content-Type")) headers.set("Content-Type", (body instanceof Blob && body.type) || "application/octet-stream");
    } else if (input.body !== undefined) {
      body = JSON.stringify(input.body);
      headers.set("Content-Type", "application/json");
    }
    if (takesKey(route) && !headers.has("Idempotency-Key")) headers.set("Idempotency-Key", newId());
    const fixed = !(body instanceof ReadableStream);
    const safe = fixed && (input.repeat || canRepeat(route) || headers.has("Idempotency-Key"));
    const { timeoutMs = 90_000, retry: { maxAttempts = 6, delayMs = 200 } = {} } = this.options;
    for (let attempt = 0; ; attempt++) {
      const dog = new Watchdog(timeoutMs, signal);
      let keep = false;
      try {
        // A write that became a read, or went elsewhere, would be worse than an error.
        const init = { method, headers, body, signal: dog.signal, redirect: method === "GET" ? ("follow" as const) : ("manual" as const), ...(fixed ? {} : { duplex: "half" }) };
        const response = await this.fetch(to, init);
        const kind = response.headers.get("Content-Type") ?? "";
        const { status } = response;
        if (status === 204 && isSilent(route)) return undefined;
        if (!/^application\/json\b/.test(kind)) {
          if (status === 204 || !isRaw(route) || /^text\/html\b/.test(kind)) throw foreign();
          keep = true;
          return response;
        }
        const text = await response.text().catch(() => {
          throw offline();
        });
        return this.parse(text);
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!(error instanceof Problem)) throw error;
        const { status, type, title, retryAfterMs = 0 } = error;
        const refused = fixed && (type === "stopping" || type === "too-many" || type === "overloaded");
        const passing = status === 0 || (status >= 502 && status <= 504) || (type === "gateway" && (status === 429 || status >= 520));
        if ((!refused && !(safe && passing)) || attempt >= maxAttempts || retryAfterMs > timeoutMs) {
          if (method === "GET" || (type !== "offline" && (type !== "gateway" || status < 500))) throw error;
          throw new Problem(type, status, { title, detail: `${error.detail} ${method} ${to} may have had its effect.` }, error.retryAfterMs);
        }
        await pause(Math.max(backOff(attempt, delayMs), retryAfterMs), signal);
      } finally {
        if (!keep) dog.end();
        else dog.rest();
      }
    }
  }
}
