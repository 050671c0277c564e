import { expect, test } from "vitest";
import { foldedIn } from "./folded";

test("what a person decides about is folded only if it is large, and then counted", () => {
  expect(foldedIn({ a: { b: { c: { d: { e: { f: 1 } } } } }, list: Array(1000).fill(1), text: "x".repeat(15_000) })).toBe(0);
  expect(foldedIn(Array(2000).fill(1))).toBe(1900);
  expect(foldedIn({ note: "x".repeat(30_000), short: "x" })).toBe(1);
  const deep = { a: { b: { c: { d: { e: 1, f: [2] } } } } };
  expect(foldedIn({ deep, list: Array(2000).fill(1) })).toBe(1900 + 4);
  expect([foldedIn(undefined), foldedIn(null), foldedIn("text")]).toEqual([0, 0, 0]);
});
