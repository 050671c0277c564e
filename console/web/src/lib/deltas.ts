/** What a step emits while it runs, as docs/events.md describes it. */
export interface Delta {
  run: string;
  path: string;
  pass: number;
  attempt: number;
  offset: number;
  data: unknown;
}

export interface LiveStep {
  run: string;
  path: string;
  pass: number;
  attempt: number;
  /** The offset that must come next. */
  next: number;
  data: unknown[];
}

const keyOf = (run: string | undefined, path: string | undefined) => `${run ?? ""} ${path ?? ""}`;

/**
 * Joins deltas by the rules of docs/events.md: passes and attempts never mix, offset 0 begins
 * anew, a gap hides the step until its event comes, and the event voids them.
 */
export class Deltas {
  private steps = new Map<string, LiveStep>();

  /** Takes a delta and reports whether what is live has changed. */
  add(d: Delta): boolean {
    const key = keyOf(d.run, d.path);
    let step = this.steps.get(key);
    if (d.offset === 0) {
      step = { run: d.run, path: d.path, pass: d.pass, attempt: d.attempt, next: 0, data: [] };
    }
    if (!step) return false;
    if (step.pass !== d.pass || step.attempt !== d.attempt || step.next !== d.offset) return this.steps.delete(key);
    step.next++;
    step.data.push(d.data);
    this.steps.set(key, step);
    return true;
  }

  /** Forgets what the step of an event has emitted. */
  settle(event: { run?: string; path?: string }): boolean {
    return this.steps.delete(keyOf(event.run, event.path));
  }

  /** Forgets everything of a run, which has ended or waits. */
  settleRun(run: string): boolean {
    let changed = false;
    for (const [key, step] of this.steps) if (step.run === run) changed = this.steps.delete(key) || changed;
    return changed;
  }

  live(): LiveStep[] {
    return [...this.steps.values()];
  }
}

interface Piece {
  part?: number;
  text?: string;
  reasoning?: string;
  call?: { id?: string; name?: string; args?: string };
  agent?: string;
}

export interface LivePart {
  kind: "text" | "reasoning" | "call";
  text: string;
  name?: string;
}

export interface LiveReply {
  agent: string;
  path: string;
  parts: LivePart[];
}

/** Whether a step is a model that writes its reply. */
export const isReply = (step: LiveStep) => /\/reply(-again)?$/.test(step.path);

/** Puts the pieces of a model's reply together, part by part. */
export function replyOf(step: LiveStep): LiveReply {
  const parts: LivePart[] = [];
  let agent = "";
  for (const data of step.data) {
    if (typeof data === "string") {
      const open = (parts[0] ??= { kind: "text", text: "" });
      open.text += data;
      continue;
    }
    const piece = (data ?? {}) as Piece;
    agent ||= piece.agent ?? "";
    const at = piece.part ?? 0;
    if (piece.text !== undefined) (parts[at] ??= { kind: "text", text: "" }).text += piece.text;
    else if (piece.reasoning !== undefined) (parts[at] ??= { kind: "reasoning", text: "" }).text += piece.reasoning;
    else if (piece.call) {
      const call = (parts[at] ??= { kind: "call", text: "" });
      call.name ??= piece.call.name;
      call.text += piece.call.args ?? "";
    }
  }
  return { agent, path: step.path, parts: parts.filter(Boolean) };
}
