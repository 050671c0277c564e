import type { Schemas } from "@/api/client";
import { foldedIn } from "./folded";
import type { Schema } from "./schema";

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

/** The ask for which a call waits: one that names it, or one below it, such as that for a credential. */
export function askOfCall(asks: readonly Ask[], call: { id: string; path?: string; result?: unknown }): Ask | undefined {
  if (call.result) return undefined;
  const below = (ask: Ask) => call.path !== undefined && `${ask.run}${ask.path}`.startsWith(`${call.path}/`);
  return asks.find((ask) => {
    const named = askedCall(ask)?.call;
    return ask.status === "open" && (named ? named === call.id : below(ask));
  });
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
  const schema = (ask.schemas ? ask.schemas[decision] : ask.schema) as Schema | undefined;
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

export const pastWord = (decision: string | undefined) => (decision ? (past[decision] ?? `Decided “${decision}”`) : "Answered");

const verbs: Record<string, string> = { approve: "Approve", edit: "Edit", reject: "Reject", respond: "Respond", always: "Always allow", provided: "Provide" };

export const verbOf = (decision: string) => verbs[decision] ?? (decision || "Answer");

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
