import type { Schemas } from "@/api/client";
import type { Status, Why } from "./status";

export type ThreadRow = Schemas["Summary"];

export interface ThreadFilter {
  q: string;
  status: string;
  flow: string;
  user: string;
}

/** What a change of a thread says about it; null: it is gone. */
export type Changes = ReadonlyMap<string, ThreadRow | null>;

const has = (text: string | undefined, part: string) => !!text && text.toLowerCase().includes(part);

/** Whether a search finds a thread: every word is somewhere in it. */
export function found(row: ThreadRow, q: string): boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every(
    (word) =>
      has(row.id, word) ||
      has(row.title, word) ||
      has(row.flow, word) ||
      has(row.user, word) ||
      Object.entries(row.metadata ?? {}).some(([key, value]) => has(`${key}=${value}`, word)),
  );
}

const fits = (row: ThreadRow, f: ThreadFilter) =>
  (!f.status || row.status === f.status) && (!f.flow || row.flow === f.flow) && (!f.user || row.user === f.user);

/**
 * Joins the pages of a list with what has changed since they were read, in the list's order: newest
 * first, by the last change if only a status is asked for. Threads that belong to pages that have
 * not been read yet are left out.
 */
export function joinThreads(pages: ThreadRow[][], changes: Changes, f: ThreadFilter, complete: boolean): ThreadRow[] {
  const key = (row: ThreadRow) => (f.status && !f.user ? row.updated : row.created);
  const known = new Map<string, ThreadRow>();
  let oldest = "";
  for (const row of pages.flat()) {
    known.set(row.id, row);
    oldest = key(row);
  }
  for (const [id, row] of changes) {
    const before = known.get(id);
    if (!row) known.delete(id);
    else if (before) known.set(id, before.updated > row.updated ? before : row);
    else if (complete || key(row) >= oldest) known.set(id, row);
  }
  const rows = [...known.values()].filter((row) => fits(row, f) && (!f.q || found(row, f.q)));
  return rows.sort((a, b) => (key(a) < key(b) ? 1 : key(a) > key(b) ? -1 : a.id < b.id ? -1 : 1));
}

/** Why a thread does not move, as far as its summary says, until the server has said more. */
export function whyOf(row: ThreadRow): Why {
  if (row.why) return row.why;
  const state: Record<Exclude<Status, "">, Why> = {
    queued: { state: "queued", text: "waits for a worker" },
    running: { state: "working", text: "a worker has it" },
    suspended: row.asks ? { state: "person", text: "waits for a person", since: row.asked } : { state: "sleep", text: "waits for time or others" },
    paused: { state: "paused", text: "paused by someone" },
    blocked: { state: "blocked", text: "its code has changed" },
    quarantined: { state: "quarantined", text: "it killed too many workers" },
    failed: { state: "failed", text: "it has failed" },
    damaged: { state: "failed", text: "its journal is damaged" },
    succeeded: { state: "done", text: "done" },
    cancelled: { state: "idle", text: "cancelled" },
    idle: { state: "idle", text: "has no run" },
  };
  return row.moved ? { state: "moved", text: `moved to ${row.moved}` } : state[row.status || "idle"];
}

/** Whether time alone may change why a thread does not move. */
export const whyAges = (row: ThreadRow) => !["done", "idle", "moved"].includes(whyOf(row).state);
