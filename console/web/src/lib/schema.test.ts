import { expect, test } from "vitest";
import { blank, check, faultsAt, faultsText, kindOf, plainSchema, type Schema, Unfinished } from "./schema";

const refund: Schema = {
  type: "object",
  properties: {
    order: { type: "string", minLength: 2 },
    amount: { type: "integer", minimum: 1, maximum: 500 },
    tags: { type: ["null", "array"], items: { type: "string" } },
    how: { enum: ["post", "courier"] },
    who: { $ref: "#/$defs/person" },
    note: { anyOf: [{ type: "string" }, { type: "null" }] },
  },
  required: ["order", "amount"],
  additionalProperties: false,
  $defs: { person: { type: "object", properties: { name: { type: "string" } }, required: ["name"] } },
};

const at = (value: unknown) => Object.fromEntries(check(refund, value));

test("faults say where and what", () => {
  expect(at({ order: "A-17", amount: 42, tags: ["a"], how: "post", who: { name: "Ada" }, note: null })).toEqual({});
  expect(at({ order: "A" })).toEqual({ "/amount": "is needed", "/order": "must have at least 2 characters" });
  expect(at({ order: "A-17", amount: 501 })).toEqual({ "/amount": "must be at most 500" });
  expect(at({ order: "A-17", amount: 1.5 })).toEqual({ "/amount": "must be a whole number" });
  expect(at({ order: "A-17", amount: 1, tags: [1] })).toEqual({ "/tags/0": "must be a text" });
  expect(at({ order: "A-17", amount: 1, how: "boat" })).toEqual({ "/how": "is not one of the choices" });
  expect(at({ order: "A-17", amount: 1, who: {} })).toEqual({ "/who/name": "is needed" });
  expect(at({ order: "A-17", amount: 1, "a/b": 2 })).toEqual({ "/a~1b": "is not known here" });
  expect(at({ order: "A-17", amount: new Unfinished("12x") })).toEqual({ "/amount": "is not finished" });
  expect(at(undefined)).toEqual({ "": "is needed" });
});

test("members may be called what every object has", () => {
  const schema: Schema = { type: "object", properties: { toString: { type: "integer" }, constructor: { type: "string" }, n: { type: "integer" } }, required: ["constructor"] };
  expect(Object.fromEntries(check(schema, { n: 1.5 }))).toEqual({ "/constructor": "is needed", "/n": "must be a whole number" });
  expect(check(schema, { constructor: "x" }).size).toBe(0);
});

test("kinds follow references and options with null", () => {
  const kind = (name: string) => kindOf(plainSchema(refund.properties?.[name], refund));
  expect(["order", "amount", "tags", "how", "who", "note"].map(kind)).toEqual(["text", "integer", "list", "choice", "object", "text"]);
  expect(kindOf({})).toBe("any");
  expect(kindOf({ type: "object" })).toBe("any");
  expect(kindOf({ type: ["string", "number"] })).toBe("any");
});

test("a reference to itself ends", () => {
  const loop: Schema = { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } };
  expect(kindOf(plainSchema(loop, loop))).toBe("any");
});

test("a blank has what is required", () => {
  expect(blank(refund, refund)).toEqual({ order: "" });
  expect(blank({ type: "object", properties: { n: { type: "integer", default: 3 } } }, {})).toEqual({ n: 3 });
});

test("an object without members needs no typing", () => {
  const nothing: Schema = { type: "object", additionalProperties: false };
  expect([kindOf(nothing), blank(nothing, nothing), check(nothing, {}).size]).toEqual(["object", {}, 0]);
  expect(kindOf({ type: "object" })).toBe("any");
});

test("what does not fit is named, also inside of JSON", () => {
  const faults = check({ type: "object", properties: { extra: { type: "object", additionalProperties: { type: "number" } } } }, { extra: { a: "x" } });
  expect(faultsAt(faults, "/extra")).toBe("/a must be a number");
  expect(faultsAt(faults, "/ext")).toBeUndefined();
  expect(faultsText(faults)).toBe("One entry does not fit: /extra/a must be a number.");
});

test("names that every object has are names like any other", () => {
  const odd = JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"},"toString":{"type":"array"}},"required":["__proto__","toString"]}') as Schema;
  expect(JSON.stringify(blank(odd, odd))).toBe('{"__proto__":"","toString":[]}');
  expect(plainSchema({ $ref: "#/constructor/prototype" }, odd)).toEqual({});
  expect(kindOf({ type: "constructor" })).toBe("any");
});

test("a name that is written twice is said where the value is written", () => {
  const faults = check({ type: "object" }, { meta: new Unfinished('{"a":1,"a":2}'), other: new Unfinished("{") });
  expect([...faults]).toEqual([
    ["/meta", 'has the name "a" twice in an object'],
    ["/other", "is not finished"],
  ]);
});
