import type { Segment, Span } from "./timeline";

export interface Break {
  from: number;
  to: number;
}

export interface Scale {
  /** Where a time is, from 0 to 1. */
  at(time: number): number;
  /** Waits that are drawn shorter than they were. */
  breaks: Break[];
}

const runs = (s: Segment) => s.look === "run" || s.look === "failed";

/** The times in which anything ran, joined where they touch. */
export function activeTimes(spans: readonly Span[], more: readonly Break[] = []): Break[] {
  const all = more.map(({ from, to }) => ({ from, to }));
  const walk = (span: Span) => {
    for (const s of span.segments) if (runs(s)) all.push({ from: s.from, to: s.to });
    span.children.forEach(walk);
  };
  spans.forEach(walk);
  all.sort((a, b) => a.from - b.from);
  const joined: Break[] = [];
  for (const one of all) {
    const last = joined.at(-1);
    if (last && one.from <= last.to) last.to = Math.max(last.to, one.to);
    else joined.push(one);
  }
  return joined;
}

/**
 * Places the times between from and to. If squeeze is set, a wait in which nothing ran takes at
 * most a tenth of the width of all that ran, so that a day of waiting does not hide a second of work.
 */
export function scaleOf(from: number, to: number, active: readonly Break[], squeeze: boolean): Scale {
  const span = Math.max(to - from, 1);
  const plain: Scale = { at: (time) => clamp((time - from) / span), breaks: [] };
  if (!squeeze) return plain;
  const worked = active.reduce((sum, one) => sum + one.to - one.from, 0);
  const longest = Math.max(worked * 0.1, 200);
  const knots: { time: number; width: number }[] = [{ time: from, width: 0 }];
  const breaks: Break[] = [];
  const go = (until: number, idle: boolean) => {
    const last = knots.at(-1)!;
    const length = until - last.time;
    if (length <= 0) return;
    if (idle && length > longest * 1.5) breaks.push({ from: last.time, to: until });
    knots.push({ time: until, width: last.width + (idle && length > longest * 1.5 ? longest : length) });
  };
  for (const one of active) {
    go(Math.min(one.from, to), true);
    go(Math.min(one.to, to), false);
  }
  go(to, true);
  if (!breaks.length) return plain;
  const total = knots.at(-1)!.width;
  const at = (time: number) => {
    if (time <= from) return 0;
    let low = 0;
    let high = knots.length - 1;
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (knots[middle]!.time <= time) low = middle;
      else high = middle;
    }
    const a = knots[low]!;
    const b = knots[high]!;
    return clamp((a.width + ((time - a.time) / Math.max(b.time - a.time, 1e-9)) * (b.width - a.width)) / total);
  };
  return { at, breaks };
}

const clamp = (x: number) => Math.max(0, Math.min(1, x));
