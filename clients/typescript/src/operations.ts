// The types of requests, taken from the OpenAPI document.
import type { paths } from "./types.js";

type Method = "get" | "post" | "put" | "patch" | "delete";

/** An operation of the API: its method and route, such as "POST /v1/runs". */
export type Route = {
  [P in keyof paths]: { [M in Method]: paths[P][M] extends { responses: unknown } ? `${Uppercase<M>} ${P}` : never }[Method];
}[keyof paths];

/** The type of an operation in the OpenAPI document. */
export type Operation<R extends Route> = R extends `${infer M} ${infer P extends keyof paths}` ? paths[P][Lowercase<M> & Method] : never;

/** A body that is sent as it is. */
export type Bytes = Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array<ArrayBuffer>>;

type Content<C> = C extends { "application/json": infer B } ? B : C extends { [type: string]: unknown } ? Bytes : never;
type PathPart<O> = O extends { parameters: { path: infer P } } ? { path: { [K in keyof P]: P[K] | readonly string[] } } : { path?: undefined };
type QueryPart<O> = O extends { parameters: { query: infer Q } } ? { query: Q } : O extends { parameters: { query?: infer Q } } ? { query?: Q } : unknown;
type BodyPart<O> = O extends { requestBody: { content: infer C } } ? { body: Content<C> } : O extends { requestBody?: { content: infer C } } ? { body?: Content<C> } : unknown;
type HeaderPart<O> = { headers?: (O extends { parameters: { header?: infer H extends object } } ? H : unknown) & { [name: string]: string | undefined } };

/** What a request takes besides its parameters and body. */
export interface Settings {
  signal?: AbortSignal;
  /** The request may be sent again when its answer was lost, since repeating it changes nothing. */
  repeat?: boolean;
}

/** What an operation takes. A list as a path parameter stands for several segments. */
export type Input<R extends Route> = R extends Route ? PathPart<Operation<R>> & QueryPart<Operation<R>> & BodyPart<Operation<R>> & HeaderPart<Operation<R>> & Settings : never;

type Good = 200 | 201 | 202 | 204;
type Returned<A> = A extends { content: infer C }
  ? C extends { "application/json": infer B }
    ? B
    : C extends { "text/event-stream": unknown }
      ? never
      : Response
  : undefined;

/** What an operation returns: the type of its JSON, or a Response if it is something else. */
export type Output<R extends Route> = Operation<R> extends { responses: infer A } ? { [S in Good & keyof A]: Returned<A[S]> }[Good & keyof A] : never;

/** Operations that take an idempotency key. */
const keyed = /^POST \/v1\/(runs|threads|bulk|schedules\/\{schedule\}\/trigger|threads\/\{thread\}\/(runs|signals\/\{name\}))$/;

/** Other writes that change nothing more when they are repeated. */
const repeatable = /\/(answers?|archive|restore|seen)$/;

/** Operations that return something else than JSON, and those that return nothing. */
const raw = /^(GET \/metrics|POST \/v1\/backup|GET \/v1\/(events|blobs\/.+|threads\/\{thread\}\/(export|runs\/\{run\}\/bundle)))$/;
const silent = /^(DELETE \/v1\/((memory|rules|schedules|threads|tokens|uploads)\/\{\w+\}|session)|POST .+\/(progress|secret|seen|signals\/\{name\})|GET \/v1\/threads\/\{thread\}\/events)$/;

export const isRaw = (route: string) => raw.test(route);
export const isSilent = (route: string) => silent.test(route);
export const takesKey = (route: string) => keyed.test(route);
export const canRepeat = (route: string) => route.startsWith("GET ") || repeatable.test(route);

function segment(name: string, value: unknown): string {
  const text = encodeURIComponent(String(value ?? ""));
  // A browser would take dots for the parent folder, however they are written.
  if (!text || /^\.\.?$/.test(text)) throw new TypeError(`perdure: ${JSON.stringify(value)} cannot be the ${name} of a request`);
  return text;
}

/** Returns the path and query of a request. */
export function address(route: string, path?: object, query?: object): string {
  const values = (path ?? {}) as Record<string, unknown>;
  const filled = route.replace(/\{(\w+)\}/g, (_, name: string) => [values[name]].flat().map((one) => segment(name, one)).join("/"));
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "" && one !== false) asked.append(name, String(one));
  }
  return filled + (asked.size ? `?${asked}` : "");
}
