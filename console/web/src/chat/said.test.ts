import { expect, test } from "vitest";
import type { Event } from "@/lib/timeline";
import { conversation, decided, heard, type Rec, recordOf } from "./said";

const user = (text: string): Rec => ({ id: "r/a/input", agent: "a", message: { role: "user", parts: [{ text }] } });
const calls = (turn: number, ...ids: string[]): Rec => ({
  id: `r/a/turn-${turn}/reply`,
  agent: "a",
  message: { role: "assistant", parts: [{ text: "I look." }, ...ids.map((id) => ({ call: { id, name: "look", args: `{"n":"${id}"}` } }))] },
});
const result = (id: string, text: string, more: Partial<Rec> = {}): Rec => ({
  id: `r/a/turn-1/${id}/run`,
  agent: "a",
  message: { role: "tool", parts: [{ result: { call: id, name: "look", text } }] },
  ...more,
});

test("results are part of their calls, also if ids come again", () => {
  const said = conversation([user("hi"), calls(1, "c1", "c2"), result("c2", "two"), result("c1", "one"), calls(2, "c1"), result("c1", "again")]);
  const found = said.map((s) => s.parts.map((p) => (p.kind === "call" ? p.call.result?.text : p.kind === "text" ? p.text : "")));
  expect(found).toEqual([["hi"], ["I look.", "one", "two"], ["I look.", "again"]]);
});

test("a call that a person edited shows with what it ran", () => {
  const said = conversation([calls(1, "c1"), result("c1", "one", { decision: "edit", by: "ann", args: { n: "c9" } })]);
  expect(said[0]?.parts[1]).toMatchObject({ kind: "call", call: { decision: "edit", by: "ann", ranWith: { n: "c9" }, args: '{"n":"c1"}' } });
});

test("a call says how its ask was closed until its result does", () => {
  const how = { decision: "reject", by: "ann" };
  const callsOf = (records: Rec[]) => decided(conversation(records), "c1", how).flatMap((s) => s.parts.flatMap((p) => (p.kind === "call" ? [[p.call.id, p.call.decision, p.call.by]] : [])));
  expect(callsOf([calls(1, "c1", "c2")])).toEqual([
    ["c1", "reject", "ann"],
    ["c2", undefined, undefined],
  ]);
  expect(callsOf([calls(1, "c1"), result("c1", "no", { decision: "reject", by: "bob" })])).toEqual([["c1", "reject", "bob"]]);
});

test("what is being written comes last", () => {
  const said = conversation([user("hi")], [{ run: "r", agent: "a", path: "/a/reply", text: "Dear", parts: [{ kind: "text", text: "Dear" }], data: {} }]);
  expect(said.map((s) => [s.role, s.live])).toEqual([
    ["user", undefined],
    ["assistant", true],
  ]);
});

test("only the events of agents carry records", () => {
  const record = user("hi");
  expect(recordOf({ run: "r", path: "/a/input", value: record })).toEqual(record);
  expect(recordOf({ run: "r", path: "/other", value: record })).toBeUndefined();
  expect(recordOf({ run: "r", path: "/a/input", value: null })).toBeUndefined();
  expect(recordOf({ run: "r", path: "/a/input", value: { id: "r/a/input" } })).toBeUndefined();
});

test("what was said in a journal says where, and is gone after a rewind", () => {
  const event = (seq: number, value: Rec): Event => ({ thread: "t", seq, kind: "step", run: "r", time: "2026-01-02T15:00:00Z", path: value.id.slice(1), took_us: 1500, value });
  const journal = [event(1, user("hi")), event(2, calls(1, "c1")), event(3, result("c1", "one"))];
  const said = conversation(heard(journal));
  expect(said.map((s) => s.at?.seq)).toEqual([1, 2]);
  expect(said[1]?.parts[1]).toMatchObject({ call: { at: { seq: 3, tookMs: 1.5 }, result: { text: "one" } } });
  expect(heard([...journal, { thread: "t", seq: 4, kind: "rewound", time: "2026-01-02T15:00:00Z", to: 1 }]).map((one) => one.at?.seq)).toEqual([1]);
});
