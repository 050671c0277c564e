import type { Schemas } from "@/api/client";
import { own } from "./own";
import type { Tone } from "./status";
import { duration } from "./time";

/** An event without its value, which may be large. */
export type Entry = Omit<Schemas["Event"], "value" | "thread" | "diff" | "plan" | "decisions" | "keep">;

export function entryOf(event: Schemas["Event"]): Entry {
  const { value: _value, thread: _thread, diff: _diff, plan: _plan, decisions: _decisions, keep: _keep, ...entry } = event;
  return entry;
}

/** The id of an event, and the tag of a thread whose last event it is: with the life, if the thread has one. */
export const idOf = (seq: number, life?: string) => (life ? `${seq}-${life}` : String(seq));

/** A point of the journal that is worth a mark on its line. */
export interface Mark {
  seq: number;
  kind: "run" | "end" | "ask" | "answer" | "takeover" | "trouble" | "control" | "branch";
  tone: Tone;
  text: string;
}

const endings: Record<string, Tone> = { succeeded: "done", failed: "bad", cancelled: "idle" };
const passEnds = new Set(["suspended", "released", "ended", "blocked", "quarantined", "paused"]);

/** The marks of a journal, in order. A run that is claimed while it was being executed was taken over. */
export function marksOf(entries: readonly Entry[]): Mark[] {
  const marks: Mark[] = [];
  const working = new Map<string, string>(); // when a run that is being executed last recorded something
  for (const e of entries) {
    const mark = (kind: Mark["kind"], tone: Tone, text: string) => marks.push({ seq: e.seq, kind, tone, text });
    const run = e.run ?? "";
    switch (e.kind) {
      case "queued":
        mark("run", "work", `run of ${e.name ?? "a flow"}`);
        break;
      case "claimed": {
        const last = working.get(run);
        if (last) mark("takeover", "bad", `another worker took over after ${duration(Date.parse(e.time) - Date.parse(last))}`);
        working.set(run, e.time);
        break;
      }
      case "asked":
        mark("ask", "ask", e.name || "a person was asked");
        break;
      case "answered":
      case "expired":
        mark("answer", "ask", `${e.kind}${e.decision ? `: ${e.decision}` : ""}${e.by ? ` by ${e.by}` : ""}`);
        break;
      case "ended":
        mark("end", own(endings, e.status) ?? "idle", `run ${e.status ?? "ended"}`);
        break;
      case "blocked":
      case "quarantined":
        mark("trouble", "bad", `run ${e.kind}`);
        break;
      case "cancel":
      case "paused":
      case "resumed":
      case "retried":
        mark("control", "idle", e.kind === "cancel" ? "cancel requested" : `run ${e.kind}`);
        break;
      case "forked":
        mark("branch", "wait", e.import ? "imported" : `forked from ${e.from ?? "another thread"} at ${e.at ?? "?"}`);
        break;
      case "rewound":
        mark("branch", "wait", `taken back to ${e.to ?? "?"}`);
        break;
    }
    if (passEnds.has(e.kind)) working.delete(run);
    else if (working.has(run)) working.set(run, e.time);
  }
  return marks;
}

/** Goes through a journal with the runs that have begun and not ended after each entry. */
function* activeAfter(entries: readonly Entry[]): Generator<[Entry, ReadonlySet<string>]> {
  let active = new Set<string>();
  const past: { seq: number; active: Set<string> }[] = [];
  for (const e of entries) {
    const next = new Set(active);
    if (e.kind === "queued" || e.kind === "retried") next.add(e.run ?? "");
    else if (e.kind === "ended") next.delete(e.run ?? "");
    else if (e.kind === "rewound") next.clear();
    else {
      yield [e, active];
      continue;
    }
    if (e.kind === "rewound") for (const run of past.findLast((point) => point.seq <= (e.to ?? 0))?.active ?? []) next.add(run);
    past.push({ seq: e.seq, active: next });
    active = next;
    yield [e, active];
  }
}

/** The runs that had begun and not ended at a sequence, by their id. */
export function activeRuns(entries: readonly Entry[], at: number): string[] {
  let found: ReadonlySet<string> = new Set();
  for (const [e, active] of activeAfter(entries)) {
    if (e.seq > at) break;
    found = active;
  }
  return [...found];
}

/** The last sequence before another one at which no run was active. */
export function quietBefore(entries: readonly Entry[], at: number): number | undefined {
  let found: number | undefined;
  for (const [e, active] of activeAfter(entries)) {
    if (e.seq >= at) break;
    if (active.size === 0) found = e.seq;
  }
  return found;
}

/** What a thread did after a sequence that reaches outside it, as a fork or rewind lists it. */
export function effectsAfter(entries: readonly Entry[], at: number): Entry[] {
  const later = entries.filter((e) => e.seq > at);
  const settled = new Set(later.filter((e) => e.kind === "step").map((e) => `${e.run} ${e.path}`));
  return later.filter((e) => e.kind === "step" || e.kind === "spawned" || (e.kind === "intent" && !settled.has(`${e.run} ${e.path}`)));
}

/** An event in a few words. */
export function entryText(e: Entry): string {
  switch (e.kind) {
    case "queued":
      return e.name ?? "";
    case "asked":
      return e.name || (e.path ?? "");
    case "ended":
      return e.status ?? "";
    case "answered":
    case "expired":
      return [e.decision, e.by && `by ${e.by}`].filter(Boolean).join(" ");
    case "forked":
      return e.import ? "imported" : `from ${e.from} at ${e.at}`;
    case "rewound":
      return `to ${e.to}`;
    default:
      return e.path ?? e.name ?? e.reason ?? "";
  }
}

/** A path as it fits into a narrow row: its last two names. */
export function pathTail(path: string): string {
  const names = path.split("/");
  return path.length > 22 && names.length > 3 ? `…/${names.slice(-2).join("/")}` : path;
}
