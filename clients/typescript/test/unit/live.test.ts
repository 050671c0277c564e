import { expect, test } from "vitest";
import { type Delta, Live } from "../../src/index.js";

const delta = (offset: number, data: unknown, more: Partial<Delta> = {}): Delta => ({ run: "r", path: "/a", pass: 1, attempt: 1, offset, data, ...more });

function shown(...deltas: Delta[]) {
  const live = new Live();
  for (const one of deltas) live.add(one);
  return live.show().map((step) => step.text);
}

test("deltas of one attempt are joined", () => {
  expect(shown(delta(0, "a"), delta(1, "b"), delta(0, "x", { path: "/b" }), delta(2, { text: "c" }))).toEqual(["abc", "x"]);
});

test("passes and attempts never mix, and offset 0 begins anew", () => {
  expect(shown(delta(0, "a"), delta(1, "b"), delta(0, "c", { pass: 2 }))).toEqual(["c"]);
  expect(shown(delta(0, "a"), delta(1, "b", { attempt: 2 }))).toEqual([]);
  expect(shown(delta(0, "a"), delta(1, "b", { pass: 2 }), delta(2, "c"))).toEqual([]);
});

test("a gap hides a step until its event", () => {
  expect(shown(delta(0, "a"), delta(2, "c"))).toEqual([]);
  expect(shown(delta(0, "a"), delta(2, "c"), delta(3, "d"))).toEqual([]);
  expect(shown(delta(3, "d"))).toEqual([]);
  expect(shown(delta(0, "a"), delta(0, "a"), delta(1, "b"))).toEqual(["ab"]);
});

test("an event voids its step, and a pause of the run all of its steps", () => {
  for (const [event, left] of [
    [{ kind: "step", run: "r", path: "/a" }, ["b", "c"]],
    [{ kind: "attempt", run: "r", path: "/a" }, ["b", "c"]],
    [{ kind: "emitted", run: "r", path: "/z" }, ["a", "b", "c"]],
    [{ kind: "queued", run: "r" }, ["a", "b", "c"]],
    [{ kind: "claimed", run: "r" }, ["c"]],
    [{ kind: "suspended", run: "r" }, ["c"]],
    [{ kind: "ended", run: "q" }, ["a", "b"]],
  ] as const) {
    const live = new Live();
    for (const one of [delta(0, "a"), delta(0, "b", { path: "/b" }), delta(0, "c", { run: "q" })]) live.add(one);
    expect(live.settle(event), event.kind).toBe(left.length < 3);
    expect(live.show().map((step) => step.text), event.kind).toEqual(left);
  }
});

test("the pieces of a reply are put together by part", () => {
  const live = new Live();
  const pieces = [{ agent: "clerk", part: 0, reasoning: "Hm" }, { part: 0, reasoning: "." }, { part: 1, text: "Yes" }, { part: 1, text: "!" }, { part: 2, call: { id: "1", name: "pay", args: '{"a":' } }, { part: 2, call: { args: "1}" } }, { usage: {} }];
  pieces.forEach((piece, at) => live.add(delta(at, piece)));
  const [first] = live.show();
  expect(first).toMatchObject({
    agent: "clerk",
    text: "Yes!",
    parts: [
      { kind: "reasoning", text: "Hm." },
      { kind: "text", text: "Yes!" },
      { kind: "call", name: "pay", text: '{"a":1}' },
    ],
  });
  live.add(delta(0, "x", { path: "/b" }));
  expect(live.show()[0]).toBe(first); // what has not changed is the same object
  live.add(delta(pieces.length, { part: 1, text: "?" }));
  expect(first?.text).toBe("Yes!"); // and what was shown never changes
});
