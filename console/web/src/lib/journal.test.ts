import { expect, test } from "vitest";
import { activeRuns, effectsAfter, type Entry, idOf, marksOf, quietBefore } from "./journal";

let seq = 0;
const entry = (kind: string, more: Partial<Entry> = {}): Entry => ({ seq: ++seq, kind, time: new Date(1_000 * seq).toISOString(), run: "r", ...more });
const journal = (...entries: [string, Partial<Entry>?][]) => {
  seq = 0;
  return entries.map(([kind, more]) => entry(kind, more));
};

test("a claim of a run that is being executed is a takeover, one after a wait is not", () => {
  const marks = marksOf(
    journal(["created", { run: undefined }], ["queued", { name: "flow" }], ["claimed"], ["step", { path: "/a" }], ["claimed"], ["asked", { name: "May I?" }], ["suspended"], ["answered", { decision: "approve", by: "ann" }], ["claimed"], ["ended", { status: "succeeded" }]),
  );
  expect(marks.map((m) => [m.seq, m.kind, m.text])).toEqual([
    [2, "run", "run of flow"],
    [5, "takeover", "another worker took over after 1.0 s"],
    [6, "ask", "May I?"],
    [8, "answer", "answered: approve by ann"],
    [10, "end", "run succeeded"],
  ]);
});

test("a thread can be taken back only to where no run was active", () => {
  const entries = journal(["created", { run: undefined }], ["queued"], ["step", { path: "/a" }], ["ended", { status: "failed" }], ["queued", { run: "s" }], ["ended", { run: "s", status: "succeeded" }], ["rewound", { to: 1 }]);
  expect(activeRuns(entries, 3)).toEqual(["r"]);
  expect(activeRuns(entries, 4)).toEqual([]);
  expect(activeRuns(entries, 5)).toEqual(["s"]);
  expect(activeRuns(entries, 7)).toEqual([]);
  expect(quietBefore(entries, 5)).toBe(4);
  expect(quietBefore(entries, 3)).toBe(1);
});

test("effects are steps, children, and what may have begun", () => {
  const entries = journal(["queued"], ["intent", { path: "/pay" }], ["step", { path: "/pay" }], ["spawned", { path: "/child" }], ["intent", { path: "/mail" }]);
  expect(effectsAfter(entries, 1).map((e) => `${e.kind} ${e.path}`)).toEqual(["step /pay", "spawned /child", "intent /mail"]);
  expect(effectsAfter(entries, 4).map((e) => `${e.kind} ${e.path}`)).toEqual(["intent /mail"]);
});

test("an id has the life of a thread that has one", () => {
  expect([idOf(7), idOf(7, ""), idOf(0, "x")]).toEqual(["7", "7", "0-x"]);
});
