import type { LiveStep } from "@perdure/client";
import type { Schemas } from "@/api/client";
import { type Event, standing } from "@/lib/timeline";

export type Rec = Schemas["Record"];

/** The event with which something was recorded. */
export interface At {
  seq: number;
  time: string;
  tookMs?: number;
}

/** A record, and where it is in the journal if that was read. */
export type Heard = Rec & { at?: At };

/** A call of a tool, with what came of it. */
export interface CallView {
  id: string;
  name: string;
  /** Where the call is in its run: the run's id and a path. */
  path?: string;
  /** As the model wrote it: JSON, which may be cut off or wrong. */
  args: string;
  result?: { text: string; error: boolean; media: Schemas["Media"][] };
  /** What a person decided, who it was, and the arguments with which the call ran if they were edited. */
  decision?: string;
  by?: string;
  expired?: boolean;
  ranWith?: unknown;
  /** The call goes on elsewhere, under this name. */
  pending?: string;
  at?: At;
}

export type SaidPart =
  | { kind: "text"; text: string }
  | { kind: "reasoning"; text: string }
  | { kind: "media"; media: Schemas["Media"] }
  | { kind: "call"; call: CallView };

/** What someone said, with the calls that an agent made. */
export interface Said {
  id: string;
  role: "user" | "assistant" | "system";
  agent: string;
  parts: SaidPart[];
  /** It is being written. */
  live?: boolean;
  /** It waits until the agent reads it. */
  waits?: boolean;
  tokens?: number;
  at?: At;
}

const roleOf = (role: string): Said["role"] => (role === "user" || role === "system" ? role : "assistant");

/** Whether a step is a model that writes its reply. */
export const isReply = (step: LiveStep) => /\/reply(-again)?$/.test(step.path);

/** Puts records in the order in which people read them: results are part of the calls that they answer. */
export function conversation(records: readonly Heard[], live: readonly LiveStep[] = []): Said[] {
  const all: Said[] = [];
  const open = new Map<string, CallView>();
  for (const record of records) {
    const parts: SaidPart[] = [];
    for (const part of record.message.parts ?? []) {
      if (part.result) settle(open, record, part.result);
      else if (part.call) {
        const path = `${record.id.slice(0, record.id.lastIndexOf("/"))}/${parts.filter((one) => one.kind === "call").length}-${part.call.name}`;
        const call: CallView = { id: part.call.id, name: part.call.name, path, args: part.call.args ?? "" };
        open.set(callKey(record.agent, call.id), call);
        parts.push({ kind: "call", call });
      } else if (part.reasoning?.text) parts.push({ kind: "reasoning", text: part.reasoning.text });
      else if (part.media) parts.push({ kind: "media", media: part.media });
      else if (part.text) parts.push({ kind: "text", text: part.text });
    }
    if (record.message.role === "tool" || parts.length === 0) continue;
    all.push({ id: record.id, role: roleOf(record.message.role), agent: record.agent, parts, tokens: record.usage && (record.usage.input ?? 0) + (record.usage.output ?? 0), at: record.at });
  }
  for (const reply of live) all.push(liveSaid(reply));
  return all;
}

/** Says of the call that an ask is about how the ask was closed, until the call's own result does. */
export function decided(said: readonly Said[], call: string | undefined, how: Pick<CallView, "decision" | "by" | "expired">): Said[] {
  return said.map((one) => ({
    ...one,
    parts: one.parts.map((part) => (part.kind === "call" && part.call.id === call && !part.call.result ? { kind: "call", call: { ...part.call, ...how } } : part)),
  }));
}

const callKey = (agent: string, id: string) => `${agent}\n${id}`;

function settle(open: Map<string, CallView>, record: Heard, result: NonNullable<Schemas["Part"]["result"]>) {
  const call = open.get(callKey(record.agent, result.call));
  if (!call) return;
  call.result = { text: result.text, error: !!result.error, media: result.media ?? [] };
  call.decision = record.decision;
  call.by = record.by;
  call.expired = record.expired;
  call.pending = record.pending;
  call.at = record.at;
  if (record.decision === "edit") call.ranWith = record.args;
}

const liveSaid = (reply: LiveStep): Said => ({
  id: `live ${reply.path}`,
  role: "assistant",
  agent: reply.agent,
  live: true,
  parts: reply.parts.map((part, at): SaidPart =>
    part.kind === "call" ? { kind: "call", call: { id: `live ${at}`, name: part.name ?? "", args: part.text } } : { kind: part.kind, text: part.text },
  ),
});

/** The record that the event of an agent's step carries, if it does. */
export function recordOf(event: { run?: string; path?: string; value?: unknown }): Rec | undefined {
  const value = event.value as Partial<Rec> | null | undefined;
  return value && typeof value === "object" && value.message && value.id === `${event.run}${event.path}` ? (value as Rec) : undefined;
}

/** The records of a journal that have not been undone, in order. */
export function heard(events: readonly Event[]): Heard[] {
  return standing(events).flatMap((event) => {
    const record = event.kind === "step" && recordOf(event);
    return record ? [{ ...record, at: { seq: event.seq, time: event.time, tookMs: event.took_us === undefined ? undefined : event.took_us / 1000 } }] : [];
  });
}
