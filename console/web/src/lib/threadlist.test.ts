import { expect, test } from "vitest";
import { changedAt, type Changes, countStatuses, found, joinThreads, mayMove, spanOf, type ThreadFilter, type ThreadRow, whyOf } from "./threadlist";

const all: ThreadFilter = { q: "", status: "", flow: "", user: "" };
const at = (minute: number) => `2026-01-02T15:${String(minute).padStart(2, "0")}:00Z`;
const row = (id: string, created: number, more: Partial<ThreadRow> = {}): ThreadRow => ({
  id,
  status: "running",
  created: at(created),
  updated: at(created),
  cursor: id,
  ...more,
});
const ids = (rows: ThreadRow[]) => rows.map((r) => r.id).join(" ");
const pages = [[row("c", 30), row("b", 20)]];

test("new threads come first, changed ones stay, erased ones go", () => {
  const changes: Changes = new Map([
    ["d", row("d", 40)],
    ["b", row("b", 20, { status: "failed", updated: at(50) })],
    ["c", null],
  ]);
  const rows = joinThreads(pages, changes, all, false);
  expect(ids(rows)).toBe("d b");
  expect(rows[1]?.status).toBe("failed");
});

test("a thread of a page that was not read yet is left out until it is", () => {
  const changes: Changes = new Map([["a", row("a", 10)]]);
  expect(ids(joinThreads(pages, changes, all, false))).toBe("c b");
  expect(ids(joinThreads(pages, changes, all, true))).toBe("c b a");
});

test("a change that is older than the page does not count", () => {
  const changes: Changes = new Map([["b", row("b", 20, { status: "queued", updated: at(1) })]]);
  expect(joinThreads(pages, changes, all, true)[1]?.status).toBe("running");
});

test("a thread leaves and enters the list of a status", () => {
  const f = { ...all, status: "running" };
  const changes: Changes = new Map([
    ["b", row("b", 20, { status: "succeeded", updated: at(51) })],
    ["a", row("a", 10, { updated: at(52) })],
  ]);
  expect(ids(joinThreads(pages, changes, f, false))).toBe("a c");
});

test("a search finds words anywhere in what identifies a thread", () => {
  const r = row("order-7", 1, { title: "Chairs for Ada", metadata: { room: "12" } });
  expect([found(r, "ada CHAIRS"), found(r, "order"), found(r, "room=12"), found(r, "ada bob")]).toEqual([true, true, true, false]);
});

test("what the server says comes before what a summary implies", () => {
  expect(whyOf(row("a", 1, { status: "suspended", asks: 1 })).state).toBe("person");
  expect(whyOf(row("a", 1, { status: "suspended" })).state).toBe("sleep");
  expect(whyOf(row("a", 1, { why: { state: "lease", text: "its worker died" } })).text).toBe("its worker died");
});

test("what fits a filter is counted by status once its list was read to the end", () => {
  const rows = [row("a", 1), row("b", 2), row("c", 3, { status: "failed" }), row("d", 4, { status: "" })];
  expect(countStatuses(rows, { ...all, flow: "f" }, true)).toEqual({ all: 4, statuses: { running: 2, failed: 1, idle: 1 } });
  expect(countStatuses(rows, { ...all, flow: "f" }, false)).toEqual({ statuses: {} });
  expect(countStatuses([rows[2]!], { ...all, flow: "f", status: "failed" }, true)).toEqual({ statuses: { failed: 1 } });
});

test("what a thread that has ended says does not depend on who said so", () => {
  const texts = (["succeeded", "cancelled", ""] as const).map((status) => whyOf(row("a", 1, { status })).text);
  expect([...texts, whyOf(row("a", 1, { moved: "s" })).text]).toEqual(["it has succeeded", "it has been cancelled", "it has no run", "it continues in another store"]);
});

test("a reason is read again while a worker has the thread or should, and once what it waits for is due", () => {
  const moves = (more: Partial<ThreadRow>) => mayMove(row("a", 1, more), whyOf(row("a", 1, more)), Date.parse(at(10)));
  expect([moves({}), moves({ status: "queued" }), moves({ moved: "s" }), moves({ status: "succeeded" }), moves({ status: "suspended", asks: 1 })]).toEqual([true, true, false, false, false]);
  const sleeps = (until: string) => moves({ status: "suspended", why: { state: "sleep", text: "it sleeps", until } });
  expect([sleeps(at(20)), sleeps(at(10))]).toEqual([false, true]);
});

test("a thread has changed when its run recorded something", () => {
  expect(changedAt(row("a", 1), { state: "working", text: "", since: at(3) })).toBe(at(3));
  expect(changedAt(row("a", 5), { state: "queued", text: "", since: at(3) })).toBe(at(5));
});

test("rows in view are the part of the list after the row before them that was read", () => {
  const rows = [row("d", 40), row("c", 30), row("b", 20), row("a", 10)];
  const cursors = new Map([["c", "after c"], ["a", "after a"]]);
  expect(spanOf(rows, cursors, 0, 2)).toEqual({ after: "", limit: 3 });
  expect(spanOf(rows, cursors, 2, 3)).toEqual({ after: "after c", limit: 2 });
  expect(spanOf(rows, cursors, 3, 3)).toEqual({ after: "after c", limit: 2 }); // b came by the stream
});
