import { expect, test } from "vitest";
import { parseExact, rawNumber } from "./exact";

const can = "rawJSON" in JSON; // Node.js 20 cannot, Chromium can

test("JSON comes back as it was", () => {
  for (const text of ['{"a":[1,2.5,"x",null,true],"b":{"c":-0.1}}', '{"n":1e21,"m":123456789012345680}', '"1234567890123456789"']) {
    expect(JSON.parse(JSON.stringify(parseExact(text)))).toEqual(JSON.parse(text));
  }
});

test.runIf(can)("a number that a double cannot hold keeps its digits", () => {
  const text = '{"id":9007199254740993,"half":0.12345678901234567890123}';
  expect(JSON.stringify(parseExact(text))).toBe(text);
  expect(rawNumber((parseExact(text) as { id: unknown }).id)).toBe("9007199254740993");
  expect(rawNumber((parseExact('{"id":9007199254740992}') as { id: unknown }).id)).toBeUndefined();
});
