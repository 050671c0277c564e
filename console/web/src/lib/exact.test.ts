import { expect, test } from "vitest";
import { jsonFault, nameTwice, parseExact, parseWritten, rawNumber, sameNumber } from "./exact";

test("JSON comes back as it was", () => {
  for (const text of ['{"a":[1,2.5,"x",null,true],"b":{"c":-0.1}}', '{"n":1e21,"m":123456789012345680}', '"1234567890123456789"']) {
    expect(JSON.parse(JSON.stringify(parseExact(text)))).toEqual(JSON.parse(text));
  }
});

test("no digit changes on the way through an edit, also without JSON.rawJSON", () => {
  for (const n of ["9007199254740993", "1152921504606846976", "-9223372036854775807", "0.12345678901234567890123", "1e400"]) {
    const value = parseExact(`{"id":${n},"text":"a \\"${n}\\" 9007199254740993","list":[1,${n}]}`) as Record<string, unknown>;
    expect(rawNumber(value.id)).toBe(n);
    expect(JSON.stringify({ ...value, more: 1 })).toBe(`{"id":${n},"text":"a \\"${n}\\" 9007199254740993","list":[1,${n}],"more":1}`);
  }
  expect(() => parseExact("[12345678901234567890,1-2]")).toThrow();
  expect(rawNumber(parseExact("9007199254740992"))).toBeUndefined();
});

test("a number that a double would write otherwise is told from one that it would not", () => {
  const same: [string, boolean][] = [
    ["9007199254740992", true],
    ["9007199254740993", false],
    ["1152921504606846976", false],
    ["0.1", true],
    ["0.12345678901234567890123", false],
    ["1.50e3", true],
    ["-0.0", true],
    ["1e400", false],
    ["123456789012345680", true],
  ];
  for (const [text, is] of same) expect([text, sameNumber(text, Number(text))]).toEqual([text, is]);
});

test("a name that occurs twice is refused where a person writes, and nowhere else", () => {
  const twice: [string, string][] = [
    ['{"a":1,"a":2}', "a"],
    ['{"a":[{"b":{}, "c":1},{"c":1,\n"c" : "}{"}]}', "c"],
    ['{"a":1,"\\u0061":2}', "a"],
    ['{"\\"":1,"x":"\\"","\\"":2}', '"'],
    ['{"__proto__":1,"__proto__":2}', "__proto__"],
    ['{"n":12345678901234567890,"n":1}', "n"],
  ];
  for (const [text, name] of twice) {
    expect(nameTwice(text)?.name).toBe(name);
    expect(() => parseWritten(text)).toThrow(jsonFault(text));
    expect(jsonFault(text)).toBe(`The name ${JSON.stringify(name)} occurs twice in an object.`);
    expect(() => parseExact(text)).not.toThrow();
  }
  expect(nameTwice('{"a":1,"\\u0061":2}')).toEqual({ name: "a", from: 7, to: 15 });
  for (const text of ['{"a":{"a":1},"b":[{"a":1},{"a":1}],"c":"a"}', '["a","a"]', '{"a":"\\"a\\":1,\\"a\\":2"}']) expect([nameTwice(text), parseWritten(text)]).toEqual([undefined, JSON.parse(text)]);
  expect(jsonFault('{"a":1,"a"')).toBe("This is not JSON yet.");
});
