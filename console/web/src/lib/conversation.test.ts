import { expect, test } from "vitest";
import { conversationOf } from "./conversation";
import type { Event } from "./timeline";

const said = (seq: number, path: string, message: unknown, more: object = {}): Event => ({
  thread: "t",
  seq,
  kind: "step",
  run: "r",
  time: "2026-01-02T15:00:00Z",
  path,
  took_us: 1500,
  value: { id: `r${path}`, agent: "bot", message, ...more },
});
const ask: Event[] = [
  said(1, "/bot/input", { role: "user", parts: [{ text: "Refund order 7" }] }),
  said(2, "/bot/turn-1/reply", { role: "assistant", parts: [{ reasoning: { text: "Hm" } }, { text: "I look." }, { call: { id: "c1", name: "refund", args: '{"order":7}' } }] }),
];

test("a call gets its result, and who decided", () => {
  const turns = conversationOf([...ask, said(3, "/bot/turn-1/0-refund/run", { role: "tool", parts: [{ result: { call: "c1", text: "done" } }] }, { decision: "approve", by: "ann" })]);
  expect(turns.map((t) => [t.role, t.texts])).toEqual([
    ["user", ["Refund order 7"]],
    ["assistant", ["I look."]],
  ]);
  expect(turns[1]?.reasoning).toEqual(["Hm"]);
  expect(turns[1]?.calls[0]).toMatchObject({ name: "refund", decision: "approve", by: "ann", tookMs: 1.5, resultSeq: 3, result: { text: "done", error: false } });
});

test("a call that waits for a person names the ask until it is answered", () => {
  const asked: Event = { thread: "t", seq: 3, kind: "asked", run: "r", time: "2026-01-02T15:00:00Z", path: "/bot/turn-1/0-refund/approve", ask: "a1" };
  expect(conversationOf([...ask, asked])[1]?.calls[0]?.ask).toBe("a1");
  expect(conversationOf([...ask, asked, { ...asked, seq: 4, kind: "answered" }])[1]?.calls[0]?.ask).toBeUndefined();
});

test("steps that return something else are no messages", () => {
  const step = { ...ask[0]!, value: { agent: "bot" } };
  expect(conversationOf([step, { ...step, value: "text" }, { ...step, value: null }])).toEqual([]);
});
