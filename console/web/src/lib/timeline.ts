import type { Schemas } from "@/api/client";
import type { Tone } from "./status";

export type Event = Schemas["Event"];

export interface Segment {
  from: number;
  to: number;
  /** run: its function ran; wait: it waited for time or others; ask: for a person; retry: for the next attempt. */
  look: "run" | "failed" | "wait" | "ask" | "retry";
}

export interface Span {
  path: string;
  /** What the row says: the end of the path below the row above it. */
  name: string;
  depth: number;
  children: Span[];
  segments: Segment[];
  from: number;
  /** Absent while it goes on. */
  to?: number;
  tone: Tone;
  attempts: number;
  error?: string;
  /** The thread that it started or waits for. */
  child?: string;
  ask?: string;
  worker?: string;
  /** It was done in a pass before the last one, which took its result from the journal. */
  replayed: boolean;
  /** The sequences of its events. */
  seqs: number[];
}

/** A worker that took over from one that was lost, and the time between. */
export interface Takeover {
  from: number;
  at: number;
  seq: number;
  lost?: string;
  worker?: string;
}

export interface Timeline {
  roots: Span[];
  takeovers: Takeover[];
  from: number;
  to: number;
  running: boolean;
}

const ms = (time: string) => Date.parse(time);
const opens = new Set(["asked", "timer", "waiting"]);
const closes = new Set(["answered", "expired", "fired", "received", "signal"]);
const passEnds = new Set(["suspended", "released", "ended", "blocked", "quarantined"]);
const shown = new Set([...opens, ...closes, "step", "attempt", "intent", "spawned", "emitted", "took"]);

/** A span in the making. */
interface Made extends Span {
  pass: number;
  placed: boolean;
}

interface Pass {
  index: number;
  worker?: string;
}

/** Events that count: those before a rewind count up to where it went back to. */
export function standing(events: readonly Event[]): Event[] {
  if (!events.some((e) => e.kind === "rewound")) return events as Event[];
  const kept: Event[] = [];
  for (const e of events) {
    if (e.kind === "rewound") while (kept.length && kept.at(-1)!.seq > (e.to ?? 0)) kept.pop();
    kept.push(e);
  }
  return kept;
}

/** A signal for which a run waits, and the event with which the oldest wait for it began: that one gets it. */
export interface Awaited {
  name: string;
  seq: number;
}

/** The signals for which a run waits, each once. */
export function signalsAwaited(all: readonly Event[], run: string): Awaited[] {
  const waits = new Map<string, Awaited>(); // by path
  for (const e of standing(all)) {
    if (e.run !== run) continue;
    if (e.kind === "ended") waits.clear();
    else if (e.kind === "waiting" && e.name) waits.set(e.path ?? "", { name: e.name, seq: e.seq });
    else if (closes.has(e.kind) || e.kind === "step") waits.delete(e.path ?? "");
  }
  const open = [...waits.values()];
  return open.filter((one) => one === open.find(({ name }) => name === one.name));
}

/** The steps of a run as a tree, with when they ran, waited and failed. now ends what goes on. */
export function timelineOf(all: readonly Event[], run: string, now: number, live: readonly string[] = []): Timeline {
  const events = standing(all).filter((e) => e.run === run);
  const spans = new Map<string, Made>();
  const takeovers: Takeover[] = [];
  let pass: Pass = { index: 0 };
  let working = false;
  let last = events[0] ? ms(events[0].time) : now;
  let running = true;
  const spanOf = (path: string, from: number) => {
    let span = spans.get(path);
    if (!span) {
      span = { path, name: path, depth: 0, children: [], segments: [], from, tone: "work", attempts: 0, replayed: false, seqs: [], pass: pass.index, placed: false };
      spans.set(path, span);
    }
    return span;
  };
  for (const e of events) {
    const at = ms(e.time);
    if (e.kind === "claimed") {
      if (working) takeovers.push({ from: last, at, seq: e.seq, lost: pass.worker, worker: e.worker });
      pass = { index: pass.index + 1, worker: e.worker };
      working = true;
    } else if (passEnds.has(e.kind)) working = false;
    if (e.kind === "ended" || e.kind === "blocked" || e.kind === "quarantined") running = false;
    if (e.kind === "claimed" || e.kind === "retried") running = true;
    last = Math.max(last, at);
    if (!e.path || !shown.has(e.kind) || e.path.includes("#") || (e.kind === "took" && e.value === undefined)) continue;
    addEvent(spanOf(e.path, at - (e.took_us ?? 0) / 1000), e, at, pass);
  }
  for (const span of spans.values()) {
    span.replayed = span.to !== undefined && span.pass < pass.index;
    if (span.to !== undefined || !running) span.to ??= last;
  }
  for (const path of live) if (running && !spans.has(path)) spanOf(path, last).segments.push({ from: last, to: now, look: "run" });
  const from = events[0] ? ms(events[0].time) : now;
  for (const span of spans.values()) for (const s of span.segments) if (s.to === Number.POSITIVE_INFINITY) s.to = running ? now : last;
  return { roots: treeOf(spans), takeovers, from, to: running ? Math.max(now, last) : last, running };
}

function addEvent(span: Made, e: Event, at: number, pass: Pass) {
  span.seqs.push(e.seq);
  span.pass = pass.index;
  span.worker = pass.worker ?? span.worker;
  span.child ??= e.child;
  span.ask ??= e.ask;
  const begun = at - (e.took_us ?? 0) / 1000;
  if (opens.has(e.kind)) {
    span.segments.push({ from: at, to: Number.POSITIVE_INFINITY, look: e.kind === "asked" ? "ask" : "wait" });
    span.tone = e.kind === "asked" ? "ask" : "wait";
    return;
  }
  const open = span.segments.at(-1);
  if (open?.to === Number.POSITIVE_INFINITY && (closes.has(e.kind) || e.kind === "step" || e.kind === "attempt")) open.to = Math.max(open.from, begun);
  switch (e.kind) {
    case "step":
      span.segments.push({ from: begun, to: at, look: e.error ? "failed" : "run" });
      span.attempts++;
      span.error = e.error;
      span.tone = e.error ? "bad" : "done";
      span.to = at;
      break;
    case "attempt":
      span.segments.push({ from: begun, to: at, look: "failed" });
      span.segments.push({ from: at, to: Number.POSITIVE_INFINITY, look: "retry" });
      span.attempts++;
      span.error = e.error;
      span.tone = "wait";
      break;
    case "intent":
      break;
    default: // closes, and what takes no time
      span.to = at;
      span.error = e.error;
      span.tone = e.error || e.status === "failed" ? "bad" : "done";
  }
}

/** Makes a tree of paths. Folders with one member only are joined with it. */
function treeOf(spans: Map<string, Made>): Span[] {
  const root = folder("");
  const folders = new Map([["", root]]);
  let last = root; // neighbours are often in one folder
  const place = (span: Made) => {
    if (span.placed) return;
    span.placed = true;
    const above = span.path.slice(0, span.path.lastIndexOf("/"));
    if (last.path !== above) last = folderOf(above);
    last.children.push(span);
  };
  const folderOf = (path: string): Made => {
    const known = folders.get(path);
    if (known) return known;
    const made = spans.get(path) ?? folder(path);
    folders.set(path, made);
    place(made);
    return made;
  };
  for (const span of spans.values()) place(span);
  settle(root);
  return root.children.map((child) => named(child, "", 0));
}

const folder = (path: string): Made => ({ path, name: "", depth: 0, children: [], segments: [], from: 0, tone: "done", attempts: 0, replayed: false, seqs: [], pass: 0, placed: false });

// What began together is in the order of its names.
const together = (time: number) => Math.floor(time / 50);

const isDigit = (code: number) => code >= 48 && code <= 57;

/** Compares names, in which numbers count by their value. */
export function byName(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a.charCodeAt(at) === b.charCodeAt(at)) at++;
  const apart = a.charCodeAt(at) - b.charCodeAt(at) || a.length - b.length;
  while (at > 0 && isDigit(a.charCodeAt(at - 1))) at--;
  if (!isDigit(a.charCodeAt(at)) || !isDigit(b.charCodeAt(at))) return apart;
  const [m, n] = [number(a, at), number(b, at)];
  if (m.digits !== n.digits) return m.digits.length - n.digits.length || (m.digits < n.digits ? -1 : 1);
  return byName(a.slice(m.end), b.slice(n.end)) || apart;
}

/** The number that begins somewhere, without zeros at its front. */
function number(text: string, from: number): { digits: string; end: number } {
  let end = from;
  while (isDigit(text.charCodeAt(end))) end++;
  while (from < end && text.charCodeAt(from) === 48) from++;
  return { digits: text.slice(from, end), end };
}

const worst: Tone[] = ["bad", "ask", "work", "wait", "idle", "done"];

/** Gives folders the time and tone of what is in them. */
function settle(span: Span) {
  if (!span.children.length) return;
  for (const child of span.children) settle(child);
  const begun = span.children.reduce((first, c) => Math.min(first, c.from), Number.POSITIVE_INFINITY);
  span.children.sort((a, b) => together(a.from) - together(b.from) || byName(a.path, b.path));
  if (span.seqs.length) {
    // A step that is made of others is recorded once they are done: it took as long as they did.
    if (begun < span.from && span.segments.length <= 1) {
      span.from = begun;
      span.segments = [];
    }
    return;
  }
  span.from = begun;
  span.to = span.children.reduce<number | undefined>((end, c) => (end === undefined || c.to === undefined ? undefined : Math.max(end, c.to)), span.from);
  span.tone = worst.find((tone) => span.children.some((c) => c.tone === tone)) ?? "done";
  span.replayed = span.children.every((c) => c.replayed);
}

function named(span: Span, above: string, depth: number): Span {
  let one = span;
  while (!one.seqs.length && !one.segments.length && one.children.length === 1) one = one.children[0]!;
  one.name = one.path.slice(above.length).replace(/^\//, "");
  one.depth = depth;
  one.children = one.children.map((child) => named(child, one.path, depth + 1));
  return one;
}

/** The rows of a tree from top to bottom, without what is inside of closed ones. */
export function rowsOf(roots: readonly Span[], closed: ReadonlySet<string>): Span[] {
  const rows: Span[] = [];
  const walk = (span: Span) => {
    rows.push(span);
    if (!closed.has(span.path)) span.children.forEach(walk);
  };
  roots.forEach(walk);
  return rows;
}
