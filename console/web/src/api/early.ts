import type {} from "../early";

const asked = globalThis.perdureEarly ?? new Map<never, never>();
globalThis.perdureEarly = asked; // from now on the page asks by itself

/** Takes the response to a request that was sent before the page began, if there is one. */
export function takeEarly(to: string, init?: RequestInit): Promise<Response> | undefined {
  const one = asked.get(to);
  if (!one || (init?.method ?? "GET") !== "GET") return undefined;
  asked.delete(to);
  const { signal } = init ?? {};
  const cut = () => one.stop.abort(signal?.reason);
  if (signal?.aborted) cut();
  signal?.addEventListener("abort", cut, { once: true });
  return one.response;
}

/** Drops the responses that nobody has taken. */
export function dropEarly() {
  for (const { stop } of asked.values()) stop.abort();
  asked.clear();
}
