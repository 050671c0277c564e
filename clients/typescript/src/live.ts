import type { Delta, ThreadEvent } from "./stream.js";

/** A part of a reply that is being written. */
export interface LivePart {
  kind: "text" | "reasoning" | "call";
  /** What was said so far; of a call, its arguments. */
  text: string;
  /** The name of the tool that is called. */
  name?: string;
}

/** What a step has said so far. */
export interface LiveStep {
  run: string;
  path: string;
  /** The agent that replies; "" if it is another step. */
  agent: string;
  /** All texts of the parts. */
  text: string;
  parts: readonly LivePart[];
  /** The data of the newest delta, such as the progress that a tool reports. */
  data: unknown;
}

interface Piece {
  part?: number;
  text?: string;
  reasoning?: string;
  call?: { name?: string; args?: string };
  agent?: string;
}

class Step {
  next = 0;
  private agent = "";
  private data: unknown;
  private parts: LivePart[] = [];
  private shown: LiveStep | undefined;

  constructor(private readonly first: Delta) {}

  follows({ pass, attempt, offset }: Delta) {
    return this.first.pass === pass && this.first.attempt === attempt && this.next === offset;
  }

  take(data: unknown) {
    this.next++;
    this.shown = undefined;
    this.data = data;
    const piece = (typeof data === "string" ? { text: data } : (data ?? {})) as Piece;
    this.agent ||= piece.agent ?? "";
    const extend = (kind: LivePart["kind"], text = "", name?: string) => {
      const at = piece.part ?? 0;
      const part = this.parts[at];
      this.parts[at] = { kind, text: (part?.text ?? "") + text, ...(kind === "call" ? { name: part?.name ?? name } : {}) };
    };
    if (typeof piece.text === "string") extend("text", piece.text);
    else if (typeof piece.reasoning === "string") extend("reasoning", piece.reasoning);
    else if (piece.call) extend("call", piece.call.args, piece.call.name);
  }

  show(): LiveStep {
    const parts = this.parts.filter(Boolean);
    const text = parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
    return (this.shown ??= { run: this.first.run, path: this.first.path, agent: this.agent, text, parts, data: this.data });
  }
}

/** Events after which no step of the run is being executed, or all start over. */
const still = /^(claimed|released|suspended|blocked|quarantined|ended)$/;

/**
 * Joins deltas by the rules of docs/events.md: passes and attempts never mix, offset 0 begins
 * anew, a gap hides the step until its event comes, and the event voids its deltas.
 */
export class Live {
  private readonly steps = new Map<string, Step>();

  /** Takes a delta, and reports whether what is shown has changed. */
  add(delta: Delta): boolean {
    const key = `${delta.run} ${delta.path}`;
    let step = this.steps.get(key);
    if (delta.offset === 0) step = new Step(delta);
    if (!step) return false;
    if (!step.follows(delta)) return this.steps.delete(key);
    step.take(delta.data);
    this.steps.set(key, step);
    return true;
  }

  /** Discards the deltas that an event voids, and reports whether there were any. */
  settle({ kind, run, path }: Pick<ThreadEvent, "kind" | "run" | "path">): boolean {
    if (!this.steps.size) return false;
    if (!still.test(kind)) return this.steps.delete(`${run} ${path}`);
    const before = this.steps.size;
    for (const key of this.steps.keys()) if (key.startsWith(`${run} `)) this.steps.delete(key);
    return this.steps.size !== before;
  }

  /** What running steps have said so far. */
  show(): LiveStep[] {
    return Array.from(this.steps.values(), (step) => step.show());
  }
}
