// Numbers that a double cannot hold stay as they were written, where the browser can do that:
// as what JSON.rawJSON makes, which JSON.stringify writes back digit by digit.

interface Raw {
  readonly rawJSON: string;
}

interface ExactJSON {
  rawJSON?(text: string): Raw;
  isRawJSON?(value: unknown): value is Raw;
  parse(text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
}

const json = JSON as unknown as ExactJSON;

/** The text of a number that was kept exactly. */
export const rawNumber = (value: unknown): string | undefined => (json.isRawJSON?.(value) ? value.rawJSON : undefined);

const maybeLossy = /\d[\d.]{15}|\d[eE][+-]?\d{2}/;

/** Parses JSON without changing a number. */
export function parseExact(text: string): unknown {
  const keep = json.rawJSON;
  if (!keep || !maybeLossy.test(text)) return JSON.parse(text);
  return json.parse(text, (_, value, context) => {
    if (typeof value !== "number" || !context?.source || sameNumber(context.source, value)) return value;
    return keep(context.source);
  });
}

/** Whether a double has exactly the value that a text says. */
export function sameNumber(source: string, value: number): boolean {
  return decimal(source) === decimal(Number.isInteger(value) && Math.abs(value) < 1e300 ? BigInt(value).toString() : String(value));
}

/** A number in one form: its digits without zeros at either end, and the power of ten. */
function decimal(text: string): string {
  const [, sign, whole = "", part = "", power = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const digits = (whole + part).replace(/^0+/, "");
  const short = digits.replace(/0+$/, "");
  return short === "" ? "0" : `${sign}${short}e${Number(power) - part.length + digits.length - short.length}`;
}

/** A value that is written as JSON, or undefined if it is not. */
export function parsed(text: string): unknown {
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}
