import type { Schemas } from "@/api/client";
import { type Event, standing } from "./timeline";

type Record_ = Schemas["Record"];
export type Media = Schemas["Media"];

export interface ToolCall {
  id: string;
  name: string;
  args: string;
  /** The path of its step, without a slash at the end. */
  path: string;
  result?: { text: string; error: boolean; media: Media[] };
  decision?: string;
  by?: string;
  rejected?: string;
  tookMs?: number;
  resultSeq?: number;
  /** The id of the ask that it waits for. */
  ask?: string;
}

export interface Turn {
  seq: number;
  run: string;
  time: string;
  role: "user" | "assistant";
  agent: string;
  texts: string[];
  reasoning: string[];
  media: Media[];
  calls: ToolCall[];
  tokens?: number;
}

/** The record of a message, if that is what a step returned. */
export function recordOf(event: Event): Record_ | undefined {
  if (event.kind !== "step") return undefined;
  const value = event.value as Partial<Record_> | null | undefined;
  return value && typeof value === "object" && typeof value.agent === "string" && Array.isArray(value.message?.parts) ? (value as Record_) : undefined;
}

/** What was said in a thread, in order, with the calls of tools and what came of them. */
export function conversationOf(events: readonly Event[]): Turn[] {
  const turns: Turn[] = [];
  const calls = new Map<string, ToolCall>();
  const asks = new Map<string, string>();
  const callAt = (run: string, id: string) => calls.get(`${run} ${id}`);
  for (const event of standing(events)) {
    if (event.ask && event.path) {
      const key = `${event.run} ${event.path}`;
      if (event.kind === "asked") asks.set(key, event.ask);
      else if (event.kind === "answered" || event.kind === "expired") asks.delete(key);
    }
    const record = recordOf(event);
    if (!record) continue;
    if (record.message.role === "tool") {
      for (const part of record.message.parts ?? []) {
        const call = part.result && callAt(event.run ?? "", part.result.call ?? "");
        if (!call || !part.result) continue;
        call.result = { text: part.result.text ?? "", error: !!part.result.error, media: part.result.media ?? [] };
        call.decision = record.decision;
        call.by = record.by;
        call.rejected = record.rejected;
        call.resultSeq = event.seq;
        call.tookMs = event.took_us === undefined ? undefined : event.took_us / 1000;
      }
      continue;
    }
    if (record.message.role !== "user" && record.message.role !== "assistant") continue;
    const turn = turnOf(event, record);
    for (const call of turn.calls) calls.set(`${turn.run} ${call.id}`, call);
    turns.push(turn);
  }
  for (const [key, ask] of asks) {
    for (const call of calls.values()) if (!call.result && key.includes(` ${call.path}/`)) call.ask = ask;
    for (const call of calls.values()) if (!call.result && key.includes(` ${call.path.replace(/\/([^/]*)$/, "/serial/$1")}/`)) call.ask = ask;
  }
  return turns;
}

function turnOf(event: Event, record: Record_): Turn {
  const folder = (event.path ?? "").replace(/\/[^/]*$/, "");
  const turn: Turn = {
    seq: event.seq,
    run: event.run ?? "",
    time: event.time,
    role: record.message.role as Turn["role"],
    agent: record.agent,
    texts: [],
    reasoning: [],
    media: [],
    calls: [],
    tokens: record.usage ? (record.usage.input ?? 0) + (record.usage.output ?? 0) : undefined,
  };
  let index = 0;
  for (const part of record.message.parts ?? []) {
    if (part.text) turn.texts.push(part.text);
    if (part.reasoning?.text) turn.reasoning.push(part.reasoning.text);
    if (part.media) turn.media.push(part.media);
    if (part.call) {
      const { id = "", name = "", args = "" } = part.call;
      turn.calls.push({ id, name, args: typeof args === "string" ? args : JSON.stringify(args), path: `${folder}/${index++}-${name}` });
    }
  }
  return turn;
}
