import { type Input, type Output, Perdure, Problem, type Route, type Schemas } from "@perdure/client";
import { apiPath } from "@/app/place";
import { parseExact } from "@/lib/exact";
import { learnTime } from "@/lib/time";
import { takeEarly } from "./early";

export { Problem, type Schemas };

let signedOut = () => {};

/** Sets what happens when the server no longer knows who is asking. */
export function onSignedOut(then: () => void) {
  signedOut = then;
}

/** The server that the page comes from. */
export const perdure = new Perdure({
  url: new URL(apiPath, location.href).href,
  cookies: true,
  retry: { maxAttempts: 0 }, // queries are repeated by the query client, and people see what fails
  parse: parseExact,
  fetch: async (to, init) => {
    const early = takeEarly(String(to), init);
    const response = await (early ?? fetch(to, init));
    if (!early) learnTime(response.headers.get("Date")); // that of an early one has passed
    if (response.status === 401) signedOut();
    return response;
  },
});

type PathOf<M extends string, R = Route> = R extends `${M} ${infer P}` ? P : never;
type Caller<M extends string> = <P extends PathOf<M>>(path: P, input?: Input<Extract<Route, `${M} ${P}`>>) => Promise<Output<Extract<Route, `${M} ${P}`>>>;

const caller = <M extends string>(method: M) =>
  ((path: string, input?: object) => (perdure.request as (route: string, input?: object) => Promise<unknown>).call(perdure, `${method} ${path}`, input)) as Caller<M>;

/** The operations of the API by method: api.get("/v1/threads/{thread}", { path: { thread } }). */
export const api = {
  get: caller("GET"),
  post: caller("POST"),
  put: caller("PUT"),
  patch: caller("PATCH"),
  delete: caller("DELETE"),
};

/** Signs in with a token, which the server keeps in a cookie that scripts cannot read. */
export const signIn = (token: string) => perdure.request("POST /v1/session", { body: { token } });

export const signOut = () => perdure.request("DELETE /v1/session");
