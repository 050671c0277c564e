import { expect, test } from "vitest";
import { type Delta, Deltas, replyOf } from "./deltas";

const delta = (offset: number, text: string, more: Partial<Delta> = {}): Delta => ({
  run: "r",
  path: "/a/reply",
  pass: 1,
  attempt: 1,
  offset,
  data: { part: 0, text, agent: "clerk" },
  ...more,
});
const said = (d: Deltas) => d.live().map((s) => replyOf(s).parts.map((p) => p.text).join("|"));

test("deltas of one attempt join in order", () => {
  const d = new Deltas();
  for (const [i, text] of ["Dear ", "Ada", ","].entries()) d.add(delta(i, text));
  expect(said(d)).toEqual(["Dear Ada,"]);
});

test("another pass begins anew and does not mix", () => {
  const d = new Deltas();
  d.add(delta(0, "Dear "));
  d.add(delta(0, "Hello ", { pass: 2 }));
  expect(said(d)).toEqual(["Hello "]);
  d.add(delta(1, "Ada", { pass: 1 }));
  expect(said(d)).toEqual([]);
});

test("a gap hides the step until it begins anew", () => {
  const d = new Deltas();
  d.add(delta(0, "a"));
  d.add(delta(2, "c"));
  d.add(delta(3, "d"));
  expect(said(d)).toEqual([]);
  d.add(delta(0, "x"));
  expect(said(d)).toEqual(["x"]);
});

test("a reader that joins late shows nothing of the step", () => {
  const d = new Deltas();
  expect(d.add(delta(5, "late"))).toBe(false);
  expect(said(d)).toEqual([]);
});

test("the event of the step voids its deltas, and no others", () => {
  const d = new Deltas();
  d.add(delta(0, "a"));
  d.add(delta(0, "b", { path: "/b/reply" }));
  expect(d.settle({ run: "r", path: "/a/reply" })).toBe(true);
  expect(said(d)).toEqual(["b"]);
  expect(d.settleRun("r")).toBe(true);
  expect(said(d)).toEqual([]);
});

test("parts of a reply are kept apart", () => {
  const d = new Deltas();
  d.add(delta(0, "", { data: { part: 0, reasoning: "Hm", agent: "clerk" } }));
  d.add(delta(1, "", { data: { part: 1, text: "I look." } }));
  d.add(delta(2, "", { data: { part: 2, call: { id: "1", name: "search", args: '{"q":' } } }));
  d.add(delta(3, "", { data: { part: 2, call: { args: '"x"}' } } }));
  expect(replyOf(d.live()[0]!).parts).toEqual([
    { kind: "reasoning", text: "Hm" },
    { kind: "text", text: "I look." },
    { kind: "call", text: '{"q":"x"}', name: "search" },
  ]);
});
