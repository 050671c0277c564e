// Numbers that a double would write otherwise stay as they were written, as what JSON.rawJSON makes, which
// JSON.stringify writes back digit by digit. Browsers without it get one that does the same here.

interface Raw {
  readonly rawJSON: string;
}

interface ExactJSON {
  rawJSON(text: string): Raw;
  isRawJSON(value: unknown): value is Raw;
  parse(text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
}

const json = JSON as unknown as ExactJSON;

const standIn = `number-${crypto.getRandomValues(new Uint32Array(4)).join("-")}:`;
const native = typeof json.rawJSON === "function";
if (!native) {
  class Written implements Raw {
    constructor(readonly rawJSON: string) {}
    toJSON() {
      return standIn + this.rawJSON;
    }
  }
  const { stringify } = JSON;
  const marked = new RegExp(`"${standIn}([^"]*)"`, "g");
  JSON.stringify = (...args: unknown[]) => {
    const text = stringify(...(args as Parameters<typeof stringify>)) as string | undefined;
    return (text?.includes(standIn) ? text.replace(marked, "$1") : text) as string;
  };
  json.rawJSON = (text) => Object.freeze(new Written(text));
  json.isRawJSON = (value): value is Raw => value instanceof Written;
}

/** The text of a number that was kept exactly. */
export const rawNumber = (value: unknown): string | undefined => (json.isRawJSON(value) ? value.rawJSON : undefined);

const maybeLossy = /\d[\d.]{15}|\d[eE][+-]?\d{2}/;
const stringOrNumber = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/** Parses JSON without changing a number. */
export function parseExact(text: string): unknown {
  if (!maybeLossy.test(text)) return JSON.parse(text);
  if (native)
    return json.parse(text, (_, value, context) => (typeof value !== "number" || !context?.source || sameNumber(context.source, value) ? value : json.rawJSON(context.source)));
  JSON.parse(text); // it is JSON
  const marked = text.replace(stringOrNumber, (token) => (token.startsWith('"') || sameNumber(token, Number(token)) ? token : `"${standIn}${token}"`));
  return JSON.parse(marked, (_, value: unknown) => (typeof value === "string" && value.startsWith(standIn) ? json.rawJSON(value.slice(standIn.length)) : value));
}

/** Whether a double is written with the value that a text says: 2^60 is not, though a double has it. */
export function sameNumber(source: string, value: number): boolean {
  return decimal(source) === decimal(String(value));
}

/** A number in one form: its digits without zeros at either end, and the power of ten. */
function decimal(text: string): string {
  const [, sign, whole = "", part = "", power = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const digits = (whole + part).replace(/^0+/, "");
  const short = digits.replace(/0+$/, "");
  return short === "" ? "0" : `${sign}${short}e${Number(power) - part.length + digits.length - short.length}`;
}

const namesAndBraces = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}]/g;

/** A name that occurs twice in an object of a JSON text, however it is spelled, and where. */
export function nameTwice(text: string): { name: string; from: number; to: number } | undefined {
  if (parsed(text) === undefined) return undefined;
  const open: Set<string>[] = [];
  for (const { 0: token, 1: quoted, 2: colon, index } of text.matchAll(namesAndBraces)) {
    if (token === "{") open.push(new Set());
    else if (token === "}") open.pop();
    else if (quoted && colon) {
      const name = JSON.parse(quoted) as string;
      const names = open.at(-1)!;
      if (names.has(name)) return { name, from: index, to: index + quoted.length };
      names.add(name);
    }
  }
  return undefined;
}

export const twiceText = (name: string) => `The name ${JSON.stringify(name)} occurs twice in an object.`;

/** Parses JSON that a person writes. A name that occurs twice is refused, as by the server: one of its values would be lost. */
export function parseWritten(text: string): unknown {
  const value = parseExact(text);
  const twice = nameTwice(text);
  if (twice) throw new SyntaxError(twiceText(twice.name));
  return value;
}

/** A value that a person writes as JSON, or undefined if it is not. */
export function parsedWritten(text: string): unknown {
  try {
    return parseWritten(text);
  } catch {
    return undefined;
  }
}

/** Why what a person writes is not taken as JSON. */
export function jsonFault(text: string): string {
  const twice = nameTwice(text);
  return twice ? twiceText(twice.name) : "This is not JSON yet.";
}

/** A value that is written as JSON, or undefined if it is not. */
export function parsed(text: string): unknown {
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}
