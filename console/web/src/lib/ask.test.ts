import { expect, test } from "vitest";
import { type Ask, askedCall, askedSecret, askOfCall, byThread, closedText, commonDecisions, decisionsOf, headingOf, isAnswer, nameOf, pastWord, tooLarge, valueSchema, verbOf } from "./ask";

const ask = (more: Partial<Ask>): Ask => ({ id: "a", thread: "t", run: "r", path: "/p", status: "open", asked: "2026-01-02T00:00:00Z", ...more });
const approval = ask({
  decisions: ["approve", "edit", "reject", "respond", "always"],
  schemas: { approve: { type: "null" }, reject: { type: "null" }, edit: { type: "object", properties: {} }, always: { type: ["object", "null"] } },
  data: { agent: "clerk", tool: "refund", call: "c1", args: { amount: 1 }, always: { allows: "all" } },
});
const custom = ask({ decisions: ["later", "now"] });

test("decisions come in the order of their buttons, with what they take", () => {
  expect(decisionsOf(approval)).toEqual(["approve", "edit", "reject", "respond", "always"]);
  expect(decisionsOf(custom)).toEqual(["later", "now"]);
  expect(decisionsOf(ask({}))).toEqual([""]);
  expect(decisionsOf(approval).map((d) => valueSchema(approval, d)?.type)).toEqual([undefined, "object", undefined, "string", ["object", "null"]]);
  expect([valueSchema(ask({ want: "number" }), ""), valueSchema(ask({}), ""), valueSchema(custom, "now")]).toEqual([{ type: "number", title: "Answer" }, undefined, null]);
});

test("a decision whose name every object has is one like any other", () => {
  for (const name of ["__proto__", "constructor", "toString"]) {
    expect([verbOf(name), pastWord(name)]).toEqual([name, `Decided “${name}”`]);
    expect(valueSchema(ask({ decisions: [name], schemas: {} }), name)).toBeNull();
    expect(valueSchema(ask({ decisions: [name], schemas: JSON.parse(`{"${name}":{"type":"string"}}`) as Ask["schemas"] }), name)).toEqual({ type: "string" });
  }
});

test("an ask is called by its own words, and knows its answer", () => {
  expect([nameOf(approval), nameOf(ask({ prompt: "Ship\nit?" })), nameOf(ask({}))]).toEqual(["refund", "Ship it?", "/p"]);
  const answered = ask({ status: "answered", answer: { decision: "edit", value: { a: 1 }, by: "ann" } as Ask["answer"] });
  expect([{ decision: "edit", value: { a: 1 } }, { decision: "edit", value: { a: 2 } }, { decision: "approve" }, {}].map((reply) => isAnswer(answered, reply))).toEqual([true, false, false, false]);
  expect(isAnswer(custom, {})).toBe(false);
});

test("only what needs no value can be decided for several", () => {
  expect(commonDecisions([approval, approval])).toEqual(["approve", "reject"]);
  expect(commonDecisions([approval, custom])).toEqual([]);
  expect(commonDecisions([approval, ask({ decisions: ["reject", "approve"] })])).toEqual(["approve", "reject"]);
});

test("what is too large to be seen at once is not approved among others", () => {
  const large = ask({ id: "large", data: { tool: "pay", args: { list: Array(2000).fill(1) } } });
  expect(tooLarge([approval, large, ask({ data: "x".repeat(30_000) })]).map((one) => one.id)).toEqual(["large", "a"]);
});

test("a call waits for the ask that names it, or is below it", () => {
  const secret = ask({ id: "secret", kind: "credential", path: "/a/turn-1/credential-0-smtp/provide", data: { credential: "smtp", agent: "clerk", calls: ["c2", "c4"] } });
  const outcome = ask({ id: "outcome", path: "/a/turn-1/1-mail/outcome" });
  const asks = [ask({ ...approval, status: "answered" }), { ...approval, id: "b" }, secret, outcome];
  expect(askOfCall(asks, { id: "c1" })?.id).toBe("b");
  expect(askOfCall(asks, { id: "c1", result: {} })).toBeUndefined();
  expect(askOfCall(asks, { id: "c2", path: "r/a/turn-1/1-mail" })?.id).toBe("secret");
  expect(askOfCall(asks, { id: "c4", path: "r/a/turn-1/2-mail" })?.id).toBe("secret");
  expect(askOfCall(asks, { id: "c3", path: "r/a/turn-1/1-mail" })?.id).toBe("outcome");
  expect(askOfCall(asks, { id: "c3", path: "r/a/turn-1/1-mai" })).toBeUndefined();
});

test("a closed ask says how it ended and by whom", () => {
  expect(closedText(approval)).toBeUndefined();
  expect([headingOf(approval), headingOf(ask({ status: "answered", answer: { decision: "reject", by: "ann" } }))]).toEqual(["Waits for a person", "Rejected by ann"]);
  expect(closedText(ask({ status: "answered", answer: { decision: "edit", by: "ann" } }))).toBe("Edited and approved by ann");
  expect(closedText(ask({ status: "answered", answer: {} }))).toBe("Answered");
  expect(closedText(ask({ status: "expired", answer: { decision: "reject" } }))).toContain("so it was rejected");
});

test("asks of one thread stay together", () => {
  expect(byThread([ask({ id: "1" }), ask({ id: "2", thread: "u" }), ask({ id: "3" })]).map((g) => g.map((a) => a.id))).toEqual([["1", "3"], ["2"]]);
  expect(askedCall(approval)).toMatchObject({ tool: "refund", allows: "all" });
  expect(askedCall(ask({ data: "text" }))).toBeUndefined();
  expect(askedSecret(ask({ kind: "credential", data: { credential: "smtp", agent: "clerk", calls: ["c2"] } }))).toEqual({ name: "smtp", agent: "clerk" });
  expect(askedSecret(ask({ kind: "credential", data: null }))).toBeUndefined();
});
