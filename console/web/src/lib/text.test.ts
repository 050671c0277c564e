import { expect, test } from "vitest";
import { brief, bytes, compact, cut, many, memberName, oneLine, plain, precise, shortId } from "./text";

test("characters that deceive are made visible", () => {
  expect(plain("a\u001b[31mred\u0000")).toBe("a\u241b[31mred\u2400");
  expect(plain("user\u202etxt.exe")).toBe("user⟨U+202E⟩txt.exe");
  expect(plain("no\u200bwidth\ufeff")).toBe("no⟨U+200B⟩width⟨U+FEFF⟩");
  expect(plain("tag\u{e0041}")).toBe("tag⟨U+E0041⟩");
  expect(plain("one\r\ntwo\tthree")).toBe("one\ntwo\tthree");
  expect(plain("over\rwrite")).toBe("over\u240dwrite");
  expect(plain("שלום 👩‍👩‍👧 naïve")).toBe("שלום 👩‍👩‍👧 naïve");
});

test("nothing looks empty or like something else", () => {
  for (const code of [0xad, 0x34f, 0x115f, 0x1160, 0x3164, 0xffa0, 0x2800, 0x180e, 0x200c, 0x200d, 0xfe0f, 0xe0100, 0xe0041, 0xe000, 0x1d159, 0xfff9, 0x206a])
    expect(plain(`bo${String.fromCodePoint(code)}b`)).toBe(`bo⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩b`);
  for (const code of [0xa0, 0x1680, 0x2007, 0x202f, 0x3000]) {
    expect(plain(`1${String.fromCodePoint(code)}000`)).toBe(`1${String.fromCodePoint(code)}000`);
    expect(precise(`1${String.fromCodePoint(code)}000`)).toBe(`1⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩000`);
  }
  expect(plain(`a${"\u0301".repeat(6)}`)).toBe(`a${"\u0301".repeat(4)}⟨U+0301⟩⟨U+0301⟩`);
  for (const good of ["❤️ 👩🏽‍🚀 🏳️‍🌈", "می‌خواهم", "क्‍ष", "日本語 한국어 é e\u0301"]) expect(plain(good)).toBe(good);
});

test("the name of a member is no more than a name", () => {
  expect(['to: "alice", x', "", "a\nb", "amount", "x-y.z", "bo\u00adb", "größe"].map(memberName)).toEqual(['"to: \\"alice\\", x"', '""', '"a\\nb"', "amount", "x-y.z", '"bo⟨U+00AD⟩b"', '"größe"']);
  expect(brief({ "to: alice · x": "mallory", a: "1 · b: 2" })).toBe('"to: alice · x": mallory · a: "1 · b: 2"');
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
  expect(brief({ order: "A-17", amount: 42, tags: ["a"], text: "one\ntwo" })).toBe('order: A-17 · amount: 42 · tags: ["a"] · text: "one\\ntwo"');
  expect([brief("x\u202ey"), brief([1, 2]), brief(null), brief(undefined), brief({ a: "x".repeat(99) }, 5)]).toEqual(["x⟨U+202E⟩y", "[1,2]", "null", "", "a: xx"]);
});
