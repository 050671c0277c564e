import { expect, test } from "vitest";
import { type Changes, found, joinThreads, type ThreadFilter, type ThreadRow, whyOf } from "./threadlist";

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
