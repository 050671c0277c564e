import type { Schemas } from "@/api/client";
import { own } from "./own";
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

/**
 * How many threads that fit a filter have each status, as far as their list says: nothing if it was not
 * read to its end, and of one status only if it has no others.
 */
export function countStatuses(rows: readonly ThreadRow[], f: ThreadFilter, complete: boolean): { all?: number; statuses: Record<string, number | undefined> } {
  if (!complete) return { statuses: {} };
  if (f.status) return { statuses: { [f.status]: rows.length } };
  const statuses: Record<string, number> = {};
  for (const row of rows) statuses[row.status || "idle"] = (own(statuses, row.status || "idle") ?? 0) + 1;
  return { all: rows.length, statuses };
}

/** Why a thread does not move, as far as its summary says, in the words of the server, until that has said more. */
export function whyOf(row: ThreadRow): Why {
  if (row.why) return row.why;
  const state: Record<Exclude<Status, "">, Why> = {
    queued: { state: "queued", text: "it waits for a worker" },
    running: { state: "working", text: "a worker executes it" },
    suspended: row.asks ? { state: "person", text: "it waits for an answer", since: row.asked } : { state: "sleep", text: "it waits for time or others" },
    paused: { state: "paused", text: "it is paused" },
    blocked: { state: "blocked", text: "the code does not fit what is recorded" },
    quarantined: { state: "quarantined", text: "it killed too many workers" },
    failed: { state: "failed", text: "it has failed" },
    damaged: { state: "failed", text: "its journal is damaged" },
    succeeded: { state: "done", text: "it has succeeded" },
    cancelled: { state: "done", text: "it has been cancelled" },
    idle: { state: "idle", text: "it has no run" },
  };
  return row.moved ? { state: "moved", text: "it continues in another store" } : (own(state, row.status || "idle") ?? state.idle);
}

/** Whether time alone may change why a thread does not move. */
export const whyAges = (row: ThreadRow) => !["done", "idle", "moved"].includes(whyOf(row).state);

/** Whether why a thread does not move may change at any moment without a change of its summary: a worker executes it, or should. */
export const mayMove = (row: ThreadRow, why: Why, now: number) =>
  !row.moved && (row.status === "running" || row.status === "queued" || (whyAges(row) && !!why.until && Date.parse(why.until) <= now));

/** When a thread has changed: a summary does not know the steps of a run that goes on, but why it does not move does. */
export const changedAt = (row: ThreadRow, why: Why): string => (why.since && Date.parse(why.since) > Date.parse(row.updated) ? why.since : row.updated);

/**
 * The part of the server's list that has the rows from first to last: the cursor that it comes after, and
 * how long it is. cursors has those of rows that were read; rows that came by the stream have none.
 */
export function spanOf(rows: readonly ThreadRow[], cursors: ReadonlyMap<string, string>, first: number, last: number): { after: string; limit: number } {
  let from = first;
  while (from > 0 && !cursors.has(rows[from - 1]!.id)) from--;
  return { after: from > 0 ? cursors.get(rows[from - 1]!.id)! : "", limit: last - from + 1 };
}
