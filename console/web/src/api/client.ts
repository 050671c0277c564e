import { apiPath } from "@/app/place";
import { parseExact } from "@/lib/exact";
import type { components, paths } from "./types";

export type Schemas = components["schemas"];

/** An error that the server reported, or that there is no server. */
export class Problem extends Error {
  constructor(
    /** The name of the problem as docs/api.md lists it, or "offline". */
    readonly type: string,
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail || title);
    this.name = "Problem";
  }
}

type Method = "get" | "post" | "put" | "patch" | "delete";
type PathOf<M extends Method> = { [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never }[keyof paths];
type Op<P extends keyof paths, M extends Method> = paths[P][M];
type Params<O, K extends string> = O extends { parameters: { [k in K]?: infer V } } ? V : never;
type Body<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
type Good = 200 | 201 | 202 | 204;
type Answer<O> = O extends { responses: infer R }
  ? { [S in Good & keyof R]: R[S] extends { content: { "application/json": infer B } } ? B : undefined }[Good & keyof R]
  : never;

export interface Request<O> {
  path?: Params<O, "path">;
  query?: Params<O, "query">;
  headers?: Record<string, string>;
  body?: Body<O>;
  signal?: AbortSignal;
}

/** Returns the address of an operation. */
export function address(route: string, path?: Record<string, unknown>, query?: Record<string, unknown>): string {
  const filled = route.slice(1).replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(path?.[name] ?? "")));
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "" && one !== false) asked.append(name, String(one));
    }
  }
  return apiPath + filled + (asked.size ? `?${asked}` : "");
}

/** Turns a response that is no success into a Problem. */
export async function problemOf(response: Response): Promise<Problem> {
  const said = (await response.json().catch(() => null)) as { type?: string; title?: string; detail?: string } | null;
  const type = said?.type?.replace("urn:perdure:problem:", "") ?? "unavailable";
  const problem = new Problem(type, response.status, said?.title ?? `status ${response.status}`, said?.detail ?? "");
  if (problem.status === 401) signedOut();
  return problem;
}

let signedOut = () => {};

/** Sets what happens when the server no longer knows who is asking. */
export function onSignedOut(then: () => void) {
  signedOut = then;
}

export const offline = () => new Problem("offline", 0, "no connection", "The server does not answer.");

/** Sends a request with the header that writes by cookie need. */
export async function send(to: string, init: RequestInit & { headers?: Record<string, string> }): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(to, { ...init, credentials: "same-origin", headers: { "Perdure-Console": "1", ...init.headers } });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw offline();
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function call(method: Method, route: string, request: Request<unknown> = {}): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json", ...request.headers };
  if (request.body !== undefined) headers["Content-Type"] = "application/json";
  const response = await send(address(route, request.path, request.query), {
    method: method.toUpperCase(),
    headers,
    body: request.body === undefined ? undefined : JSON.stringify(request.body),
    signal: request.signal,
  });
  if (response.status === 204) return undefined;
  const text = await response.text();
  return text ? parseExact(text) : undefined;
}

type Caller<M extends Method> = <P extends PathOf<M>>(route: P, request?: Request<Op<P, M>>) => Promise<Answer<Op<P, M>>>;

const caller = <M extends Method>(method: M) => ((route: string, request?: Request<unknown>) => call(method, route, request)) as Caller<M>;

/** The operations of the API by method: api.get("/v1/threads/{thread}", { path: { thread } }). */
export const api = {
  get: caller("get"),
  post: caller("post"),
  put: caller("put"),
  patch: caller("patch"),
  delete: caller("delete"),
};

/** Signs in with a token, which the server keeps in a cookie that scripts cannot read. */
export async function signIn(token: string): Promise<void> {
  await send(`${apiPath}v1/session`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
}

export async function signOut(): Promise<void> {
  await send(`${apiPath}v1/session`, { method: "DELETE" });
}
