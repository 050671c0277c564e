import { expect, test } from "vitest";
import { asText, lineDiff, withContext } from "./difference";

test("a change of one member is one line removed and one added", () => {
  const lines = lineDiff(asText({ to: "Ada", amount: 40 }), asText({ to: "Ada", amount: 42 }));
  expect(lines.filter((l) => l.kind !== "same")).toEqual([
    { kind: "removed", text: '  "amount": 40' },
    { kind: "added", text: '  "amount": 42' },
  ]);
});

test("a line that others follow is the same line", () => {
  expect(lineDiff("one\ntwo", "one\ntwo\nthree").map((l) => `${l.kind} ${l.text}`)).toEqual(["same one", "same two", "added three"]);
});

test("what did not change is left out but for its surroundings", () => {
  const text = Array.from({ length: 20 }, (_, i) => `line ${i}`);
  const shown = withContext(lineDiff(text.join("\n"), text.with(10, "other").join("\n")), 1);
  expect(shown.map((l) => l && `${l.kind} ${l.text}`)).toEqual([null, "same line 9", "removed line 10", "added other", "same line 11", null]);
});

test("one line alone is not left out", () => {
  const lines = lineDiff("{\na\nb\nc\nd\n}", "{\nA\nb\nc\nd\n}");
  expect(withContext(lines, 3).at(-1)?.text).toBe("}");
  expect(withContext(lines, 2).at(-1)).toBeNull();
});
