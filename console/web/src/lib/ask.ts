import type { Schemas } from "@/api/client";
import { foldedIn } from "./folded";
import { own } from "./own";
import type { Schema } from "./schema";
import { oneLine } from "./text";

export type Ask = Schemas["AskInfo"];

/** What an ask about a call says of it. */
export interface AskedCall {
  agent?: string;
  tool: string;
  call?: string;
  args: unknown;
  description?: string;
  ref?: string;
  /** What the rule would allow that the decision always makes. */
  allows?: string;
}

export function askedCall(ask: Ask): AskedCall | undefined {
  const data = ask.data as (Partial<AskedCall> & { always?: { allows?: string } }) | null | undefined;
  if (!data || typeof data !== "object" || typeof data.tool !== "string") return undefined;
  return { agent: data.agent, tool: data.tool, call: data.call, args: data.args, description: data.description, ref: data.ref, allows: data.always?.allows };
}

/** The calls that an ask names: the one that it is about, or all that wait for a credential. */
function namedCalls(ask: Ask): string[] | undefined {
  const call = askedCall(ask)?.call;
  if (call) return [call];
  const { calls } = (ask.data ?? {}) as { calls?: unknown };
  return wantsSecret(ask) && Array.isArray(calls) ? (calls as string[]) : undefined;
}

/** The ask for which a call waits: one that names it, or one below it. */
export function askOfCall(asks: readonly Ask[], call: { id: string; path?: string; result?: unknown }): Ask | undefined {
  if (call.result) return undefined;
  const below = (ask: Ask) => call.path !== undefined && `${ask.run}${ask.path}`.startsWith(`${call.path}/`);
  return asks.find((ask) => ask.status === "open" && (namedCalls(ask)?.includes(call.id) ?? below(ask)));
}

/** Whether an ask waits for a credential. */
export const wantsSecret = (ask: Ask) => ask.kind === "credential";

/** What an ask for a credential says of it. */
export function askedSecret(ask: Ask): { name: string; agent?: string } | undefined {
  const data = ask.data as { credential?: unknown; agent?: unknown } | null | undefined;
  if (!wantsSecret(ask) || typeof data?.credential !== "string") return undefined;
  return { name: data.credential, agent: typeof data.agent === "string" ? data.agent : undefined };
}

/** The decisions of an ask in the order of its buttons. "" stands for an answer without one. */
export function decisionsOf(ask: Ask): string[] {
  const order = ["approve", "provided", "edit", "reject", "respond", "always"];
  const place = (decision: string) => (order.includes(decision) ? order.indexOf(decision) : 1.5);
  const all = ask.decisions?.length ? [...ask.decisions] : [""];
  return all.sort((a, b) => place(a) - place(b));
}

/** The schema of the value of a decision, undefined if any value will do, and null if it has none. */
export function valueSchema(ask: Ask, decision: string): Schema | undefined | null {
  const schema = (ask.schemas ? own(ask.schemas, decision) : ask.schema) as Schema | undefined;
  if (schema?.type === "null") return null;
  if (schema) return schema;
  if (decision === "approve" || decision === "reject") return null;
  if (decision === "respond") return { type: "string", title: "Answer" };
  if (ask.want) return { type: ask.want, title: "Answer" };
  return decision === "" ? undefined : null;
}

/** Whether an ask is past answering, and how it ended in words. */
export function closedText(ask: Ask): string | undefined {
  if (ask.status === "open") return undefined;
  const by = ask.answer?.by ? ` by ${ask.answer.by}` : "";
  if (ask.status === "answered" && ask.answer?.decision === "always") return `Approved${by}, and allowed from now on`;
  if (ask.status === "answered") return `${pastWord(ask.answer?.decision)}${by}`;
  if (ask.status === "expired") return ask.answer?.decision ? `Expired: nobody answered in time, so it was ${pastWord(ask.answer.decision).toLowerCase()}` : "Expired: nobody answered in time";
  return "Closed: its run went on or ended without an answer";
}

/** Whether an ask was answered with this. */
export const isAnswer = ({ answer }: Ask, reply: { decision?: string; value?: unknown; message?: string }): boolean =>
  !!answer && replyText(answer) === replyText(reply);

/** An answer as a text, the same for the same answer. */
export const replyText = ({ decision, value, message }: { decision?: string; value?: unknown; message?: string }) => JSON.stringify([decision ?? "", value ?? null, message ?? ""]);

/** What the page of an ask is headed: that it waits, or how it ended. */
export const headingOf = (ask: Ask): string => closedText(ask) ?? "Waits for a person";

const past: Record<string, string> = {
  approve: "Approved",
  edit: "Edited and approved",
  reject: "Rejected",
  respond: "Answered in place of the call",
  always: "Approved, and allowed from now on",
  provided: "Provided",
};

export const pastWord = (decision: string | undefined) => (decision ? (own(past, decision) ?? `Decided “${decision}”`) : "Answered");

const verbs: Record<string, string> = { approve: "Approve", edit: "Edit", reject: "Reject", respond: "Respond", always: "Always allow", provided: "Provide" };

export const verbOf = (decision: string) => own(verbs, decision) ?? (decision || "Answer");

/** An ask by its own words: what may be called, or what is asked. */
export const nameOf = (ask: Ask): string => oneLine(askedCall(ask)?.tool || ask.prompt || askedSecret(ask)?.name || ask.path, 80);

/** Open asks in groups: those of one thread together, in the order in which the list has them. */
export function byThread(asks: readonly Ask[]): Ask[][] {
  const groups = new Map<string, Ask[]>();
  for (const ask of asks) {
    const group = groups.get(ask.thread);
    if (group) group.push(ask);
    else groups.set(ask.thread, [ask]);
  }
  return [...groups.values()];
}

/** The asks that are too large to be shown at once: they are not approved among others. */
export const tooLarge = (asks: readonly Ask[]): Ask[] => asks.filter((ask) => foldedIn(aboutOf(ask)) > 0);

/** What a person decides about. */
export function aboutOf(ask: Ask): unknown {
  const call = askedCall(ask);
  return call ? call.args : ask.data;
}

/** The decisions that need no value and that all of the asks allow. */
export function commonDecisions(asks: readonly Ask[]): string[] {
  const [first, ...rest] = asks;
  if (!first) return [];
  return decisionsOf(first).filter((d) => d !== "" && d !== "always" && [first, ...rest].every((ask) => ask.decisions?.includes(d) && valueSchema(ask, d) === null));
}
