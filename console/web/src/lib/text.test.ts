import { expect, test } from "vitest";
import { brief, bytes, compact, cut, many, oneLine, plain, shortId } from "./text";

test("characters that deceive are made visible", () => {
  expect(plain("a\u001b[31mred\u0000")).toBe("a\u241b[31mred\u2400");
  expect(plain("user\u202etxt.exe")).toBe("user⟨U+202E⟩txt.exe");
  expect(plain("no\u200bwidth\ufeff")).toBe("no⟨U+200B⟩width⟨U+FEFF⟩");
  expect(plain("tag\u{e0041}")).toBe("tag⟨U+E0041⟩");
  expect(plain("one\r\ntwo\tthree")).toBe("one\ntwo\tthree");
  expect(plain("over\rwrite")).toBe("over\u240dwrite");
  expect(plain("שלום 👩‍👩‍👧 naïve")).toBe("שלום 👩‍👩‍👧 naïve");
});

test("a cut never halves a character", () => {
  expect(cut("ab😀", 3)).toEqual({ text: "ab", more: 2 });
  expect(cut("ab😀", 4)).toEqual({ text: "ab😀", more: 0 });
  expect(oneLine("a\n\n b", 10)).toBe("a  b");
});

test("numbers and sizes are short", () => {
  expect([0, 999, 1000, 1234, 12_345, 999_999, 4_500_000].map(compact)).toEqual(["0", "999", "1k", "1.2k", "12k", "1M", "4.5M"]);
  expect([0, 999, 1000, 1536, 123_456, 5_000_000].map(bytes)).toEqual(["0 B", "999 B", "1 kB", "1.5 kB", "123 kB", "5 MB"]);
  expect([many(1, "run"), many(2, "run"), many(1200, "entry", "entries")]).toEqual(["1 run", "2 runs", "1,200 entries"]);
  expect([shortId("rptem1m3n66z8m489dfs9qw8"), shortId("order-7")]).toEqual(["rptem1m3", "order-7"]);
});

test("a value is brief on one line", () => {
  expect(brief({ order: "A-17", amount: 42, tags: ["a"], text: "one\ntwo" })).toBe('order: A-17 · amount: 42 · tags: ["a"] · text: one two');
  expect([brief("x\u202ey"), brief([1, 2]), brief(null), brief(undefined), brief({ a: "x".repeat(99) }, 5)]).toEqual(["x⟨U+202E⟩y", "[1,2]", "null", "", "a: xx"]);
});
