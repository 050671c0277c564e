import { type Schema as Checked, Validator } from "@cfworker/json-schema";
import { nameTwice, rawNumber } from "./exact";
import { own } from "./own";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema | boolean>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  items?: Schema | boolean;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  format?: string;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  [keyword: string]: unknown;
}

export type Kind = "object" | "list" | "text" | "number" | "integer" | "yes-no" | "choice" | "null" | "any";

/** The schema without what stands around it: references within it, and a choice of one thing or null. */
export function plainSchema(schema: Schema | boolean | undefined, root: Schema): Schema {
  let at = typeof schema === "object" && schema !== null ? schema : {};
  for (let depth = 0; depth < 20; depth++) {
    const { $ref, ...rest } = at;
    const options = (at.anyOf ?? at.oneOf)?.filter((one) => one.type !== "null");
    if ($ref?.startsWith("#")) at = { ...(lookUp(root, $ref) ?? {}), ...rest };
    else if (options?.length === 1 && !at.type) at = { ...omit(at), ...options[0] };
    else break;
  }
  return at;
}

const omit = ({ anyOf: _, oneOf: __, ...rest }: Schema): Schema => rest;

function lookUp(root: Schema, ref: string): Schema | undefined {
  let at: unknown = root;
  for (const name of ref.split("/").slice(1)) at = own(at as Record<string, unknown> | undefined, decodeURIComponent(name).replace(/~1/g, "/").replace(/~0/g, "~"));
  return typeof at === "object" && at !== null ? (at as Schema) : undefined;
}

const kinds: Record<string, Kind> = { object: "object", array: "list", string: "text", number: "number", integer: "integer", boolean: "yes-no", null: "null" };

/** What can be entered for a schema, which is plain. */
export function kindOf(schema: Schema): Kind {
  if (schema.enum && schema.enum.every((one) => one === null || typeof one !== "object")) return "choice";
  const types = (Array.isArray(schema.type) ? schema.type : schema.type ? [schema.type] : []).filter((type, _, all) => type !== "null" || all.length === 1);
  if (types.length === 1) {
    const kind = own(kinds, types[0]) ?? "any";
    return kind === "object" && !schema.properties && schema.additionalProperties !== false ? "any" : kind;
  }
  return types.length === 0 && schema.properties ? "object" : "any";
}

/** A value to begin with: what the schema says, or the least that has its shape. */
export function blank(schema: Schema | boolean | undefined, root: Schema, needed = true): unknown {
  const at = plainSchema(schema, root);
  if (at.default !== undefined) return at.default;
  if (at.const !== undefined) return at.const;
  if (!needed) return undefined;
  switch (kindOf(at)) {
    case "object": {
      const members = Object.entries(at.properties ?? {}).map(([name, one]) => [name, blank(one, root, at.required?.includes(name) ?? false)] as const);
      return Object.fromEntries(members.filter(([, inner]) => inner !== undefined));
    }
    case "list":
      return [];
    case "text":
      return "";
    case "yes-no":
      return false;
    case "null":
      return null;
    default:
      return undefined;
  }
}

/** What someone has begun to type where only a number or JSON is allowed. */
export class Unfinished {
  constructor(readonly text: string) {}
  toJSON() {
    return this.text;
  }
}

/** What is wrong with a value, by JSON pointer: "" is the whole of it. */
export type Faults = Map<string, string>;

export function check(schema: Schema | undefined, value: unknown): Faults {
  const faults: Faults = new Map();
  if (value === undefined) return faults.set("", "is needed");
  unfinished(value, "", faults);
  if (!schema || faults.size) return faults;
  let found: { keyword: string; instanceLocation: string; error: string }[];
  try {
    found = new Validator(schema as Checked, "2020-12", false).validate(JSON.parse(JSON.stringify(value), bare)).errors;
  } catch {
    return faults; // a schema that is not one; the server decides
  }
  for (const { keyword, instanceLocation, error } of found) {
    const at = instanceLocation.replace(/^#/, "");
    const [, name] = /"([^"]*)"/.exec(error) ?? [];
    if (keyword === "required" && name !== undefined) add(faults, `${at}/${pointer(name)}`, "is needed");
    else if (!outer.has(keyword)) add(faults, at, words(keyword, error));
  }
  for (const { keyword, instanceLocation } of found) {
    const at = instanceLocation.slice(1); // members that do not fit their schema count as unknown too
    if (keyword === "false" && ![...faults.keys()].some((other) => other === at || other.startsWith(`${at}/`))) faults.set(at, "is not known here");
  }
  if (!faults.size && found[0]) faults.set("", "does not fit");
  return faults;
}

/** Objects have the members that were written only, not those that every object of the language has, such as toString. */
const bare = (_: string, value: unknown) => (value !== null && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value);

const outer = new Set(["properties", "items", "prefixItems", "additionalProperties", "$ref", "allOf", "patternProperties", "false"]);

const add = (faults: Faults, at: string, text: string) => {
  if (!faults.has(at)) faults.set(at, text);
};

function unfinished(value: unknown, at: string, faults: Faults) {
  if (value instanceof Unfinished) {
    const twice = nameTwice(value.text);
    faults.set(at, twice ? `has the name ${JSON.stringify(twice.name)} twice in an object` : "is not finished");
  }
  else if (rawNumber(value) === undefined && value !== null && typeof value === "object")
    for (const [name, one] of Object.entries(value)) unfinished(one, `${at}/${pointer(name)}`, faults);
}

/** The faults at a place and inside of it, each with its way from there. */
export function faultsAt(faults: Faults, at: string): string | undefined {
  const said = [...faults].flatMap(([place, text]) => (place === at ? [text] : place.startsWith(`${at}/`) ? [`${place.slice(at.length)} ${text}`] : []));
  return said.length ? said.join(", ") : undefined;
}

/** What does not fit, in a sentence. */
export function faultsText(faults: Faults): string {
  const said = [...faults].slice(0, 3).map(([place, text]) => (place ? `${place} ${text}` : `the value ${text}`));
  const more = faults.size - said.length;
  return `${faults.size === 1 ? "One entry does not fit" : `${faults.size} entries do not fit`}: ${said.join("; ")}${more > 0 ? `; and ${more} more` : ""}.`;
}

export const pointer = (name: string) => name.replace(/~/g, "~0").replace(/\//g, "~1");

const expected: Record<string, string> = { string: "a text", number: "a number", integer: "a whole number", boolean: "true or false", array: "a list", object: "an object", null: "null" };

/** What a validator says, as a person would. */
function words(keyword: string, error: string): string {
  const last = /(-?[\d.e+]+?)\.?\)?\.?$/.exec(error)?.[1] ?? "";
  switch (keyword) {
    case "type": {
      const types = [...error.replace(/^.*Expected/, "").matchAll(/"(\w+)"/g)].map((m) => own(expected, m[1]) ?? m[1]!);
      return `must be ${types.filter((t) => t !== "null" || types.length === 1).join(" or ")}`;
    }
    case "minimum":
      return `must be at least ${last}`;
    case "maximum":
      return `must be at most ${last}`;
    case "exclusiveMinimum":
      return `must be more than ${last}`;
    case "exclusiveMaximum":
      return `must be less than ${last}`;
    case "multipleOf":
      return `must be a multiple of ${last}`;
    case "minLength":
      return `must have at least ${last} characters`;
    case "maxLength":
      return `must have at most ${last} characters`;
    case "minItems":
      return `must have at least ${last} elements`;
    case "maxItems":
      return `must have at most ${last} elements`;
    case "pattern":
      return "does not have the expected form";
    case "enum":
    case "const":
      return "is not one of the choices";
    case "format":
      return `must be a ${/"([^"]+)"/.exec(error)?.[1] ?? "value of the expected format"}`;
    case "uniqueItems":
      return "has an element twice";
    default:
      return "does not fit";
  }
}
