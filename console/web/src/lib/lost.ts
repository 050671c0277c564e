import { Problem } from "@perdure/client";

/** Whether a write has no response of the server, so that nobody knows if it had its effect. */
export const isLost = (error: unknown): boolean => error instanceof Problem && (error.type === "offline" || (error.type === "gateway" && error.status >= 500));

/** How long to wait before the next of several tries in a row, in ms. */
export const backOff = (failures: number) => Math.min(1000 * 2 ** failures, 10_000);

/** What to say of a write that failed: that it did, and why; or, without a response, what may not have arrived, and what to do then. */
export const failure = (failed: string, error: unknown, what: string, then: string): [text: string, why: unknown] =>
  isLost(error) ? [`${what} may not have arrived`, then] : [failed, error];

/** The same beside a form, which says by itself what has failed. */
export function failureText(error: Error | null, then: string): string | undefined {
  if (!error) return undefined;
  if (isLost(error)) return `The request may not have arrived. ${then}`;
  return error instanceof Problem ? error.detail || error.title : error.message;
}
