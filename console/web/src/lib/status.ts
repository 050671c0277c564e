import type { Schemas } from "@/api/client";
import { own } from "./own";
import { age, relative } from "./time";

export type Status = Schemas["Summary"]["status"];
export type Tone = "done" | "work" | "ask" | "wait" | "bad" | "idle";

/** Why a thread does not move, or that it does. */
export type Why = Schemas["Why"];
export type WhyState = Why["state"];

export const statuses: Exclude<Status, "">[] = [
  "queued",
  "running",
  "suspended",
  "paused",
  "blocked",
  "quarantined",
  "failed",
  "damaged",
  "succeeded",
  "cancelled",
  "idle",
];

const tones: Record<Exclude<Status, "">, Tone> = {
  queued: "work",
  running: "work",
  suspended: "wait",
  paused: "idle",
  blocked: "bad",
  quarantined: "bad",
  failed: "bad",
  damaged: "bad",
  succeeded: "done",
  cancelled: "idle",
  idle: "idle",
};

/** The word and the tone of a status. A thread that waits for a person says so. */
export function statusLook(status: Status, asks = 0): { tone: Tone; word: string } {
  if (status === "" || status === undefined) return { tone: "idle", word: "idle" };
  if (status === "suspended") return asks > 0 ? { tone: "ask", word: "asks" } : { tone: "wait", word: "waits" };
  return { tone: own(tones, status) ?? "idle", word: status };
}

const whyTones: Record<WhyState, Tone> = {
  working: "work",
  queued: "work",
  person: "ask",
  signal: "wait",
  sleep: "wait",
  retry: "wait",
  child: "wait",
  "no-worker": "bad",
  lease: "bad",
  paused: "idle",
  blocked: "bad",
  quarantined: "bad",
  failed: "bad",
  done: "done",
  idle: "idle",
  moved: "idle",
};

export const whyTone = (why: Why): Tone => own(whyTones, why.state) ?? "idle";

/** When what a thread waits for comes, or since when it waits; nothing where neither helps. */
export function whyWhen(why: Why, now: number): string {
  const until = why.until ? Date.parse(why.until) : 0;
  const what = own({ person: "expires ", retry: "next attempt " }, why.state) ?? "";
  if (until > now && why.state !== "working") return what + relative(until, now);
  const waits = ["queued", "person", "signal", "child", "no-worker", "paused", "blocked", "quarantined"].includes(why.state);
  const past = waits && why.since ? now - Date.parse(why.since) : 0;
  return past >= 1000 ? `for ${age(past)}` : "";
}

/** Whether a run in this status has ended for good, unless someone retries it. */
export const ended = (status: Status) => ["succeeded", "failed", "cancelled"].includes(status);

/** The controls that make sense for a run in this status. */
export function controls(status: Status): ("pause" | "resume" | "cancel" | "retry" | "again")[] {
  switch (status) {
    case "queued":
    case "running":
    case "suspended":
      return ["pause", "cancel"];
    case "paused":
      return ["resume", "cancel"];
    case "blocked":
    case "quarantined":
      return ["retry", "cancel"];
    case "failed":
      return ["retry", "again"];
    case "succeeded":
    case "cancelled":
      return ["again"];
    default:
      return [];
  }
}
