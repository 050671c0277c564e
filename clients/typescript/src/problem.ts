import type { components } from "./types.js";

export type Schemas = components["schemas"];

/** An error that the server reported, or that there is no server. */
export class Problem extends Error {
  /**
   * The name of the problem as docs/api.md lists it, such as "no-thread"; "offline" if nothing
   * answers, and "gateway" if something else than Perdure does.
   */
  readonly type: string;
  /** The HTTP status; 0 if nothing answers. */
  readonly status: number;
  readonly title: string;
  /** What happened and what to do. It may be empty. */
  readonly detail: string;
  /** All that the server said about it, such as `thread`, `run`, `seq` and `quota`. */
  readonly data: Partial<Schemas["Problem"]>;
  /** After how many milliseconds the server would like to be asked again. */
  readonly retryAfterMs?: number;

  constructor(type: string, status: number, data: Partial<Schemas["Problem"]> = {}, retryAfterMs?: number) {
    const title = data.title ?? (status ? `status ${status}` : type);
    super(data.detail || title);
    this.name = "Problem";
    this.type = type;
    this.status = status;
    this.title = title;
    this.detail = data.detail ?? "";
    this.data = data;
    this.retryAfterMs = retryAfterMs;
  }
}

export const offline = () => new Problem("offline", 0, { title: "no connection", detail: "The server does not answer." });

/** What to make of an answer that is not Perdure's. */
export const foreign = (status = 502, detail = "", retryAfterMs?: number) =>
  new Problem("gateway", status, { title: "not an answer of Perdure", detail: `Something between here and the server answered in its place. ${detail}`.trim() }, retryAfterMs);

const urn = "urn:perdure:problem:";

/** Turns a response that is not a success into a Problem. */
export async function problemOf(response: Response): Promise<Problem> {
  if (response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)) return foreign(302, "It sends elsewhere, perhaps to log in, and has not passed on the request.");
  const data = (await response.json().catch(() => null)) as Partial<Schemas["Problem"]> | null;
  const seconds = Number(response.headers.get("Retry-After") || undefined);
  const wait = seconds >= 0 ? seconds * 1000 : undefined;
  if (!data || !String(data.type).startsWith(urn)) return foreign(response.status, `Its status is ${response.status}.${response.status === 429 ? " Try again later." : ""}`, wait);
  return new Problem(String(data.type).slice(urn.length), response.status, data, wait);
}
