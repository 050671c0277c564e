/** What a control character or a mark of direction looks like when it is made visible. */
function visible(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// Controls but tab and newline, C1 controls, marks that change the direction of text, characters
// without width, separators of lines and paragraphs, tags, and byte order marks.
const hidden =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** Makes characters visible that would hide or reorder the text around them. */
export function plain(text: string): string {
  return text.replace(/\r\n/g, "\n").replace(hidden, visible);
}

/** The same on one line. */
export function oneLine(text: string, limit = 300): string {
  return plain(cut(text, limit).text).replace(/[\n\t]+/g, " ");
}

/** The beginning of a text, and how many characters are missing. */
export function cut(text: string, limit: number): { text: string; more: number } {
  if (text.length <= limit) return { text, more: 0 };
  let end = limit;
  const last = text.charCodeAt(end - 1);
  if (last >= 0xd800 && last <= 0xdbff) end--;
  return { text: text.slice(0, end), more: text.length - end };
}

/** An id as it fits into a row: the beginning of long ones that no person chose. */
export const shortId = (id: string) => (/^[0-9a-z]{20,}$/.test(id) ? id.slice(0, 8) : id);

const numbers = new Intl.NumberFormat("en-US");
export const count = (n: number) => numbers.format(n);

/** A count with a word in the right number. */
export const many = (n: number, one: string, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

/** 950, 12.3k, 4.5M. */
export function compact(n: number): string {
  if (n < 1000) return String(n);
  if (n < 999_950) return `${(n / 1000).toFixed(n < 9950 ? 1 : 0).replace(/\.0$/, "")}k`;
  return `${(n / 1e6).toFixed(1).replace(/\.0$/, "")}M`;
}

export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = n;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at++;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1).replace(/\.0$/, "")} ${units[at]}`;
}

/** What the model's provider charged, from millionths of a dollar. */
export function dollars(micros: number): string {
  const value = micros / 1e6;
  return `$${value >= 1 ? value.toFixed(2) : value.toPrecision(2)}`;
}

/** A value in a few words for a row: the members of an object one after the other. */
export function brief(value: unknown, limit = 200): string {
  if (typeof value === "string") return oneLine(value, limit);
  if (value === null || typeof value !== "object" || Array.isArray(value)) return oneLine(JSON.stringify(value) ?? "", limit);
  const members = Object.entries(value).map(([name, one]) => `${name}: ${typeof one === "string" ? one : JSON.stringify(one)}`);
  return oneLine(members.join(" · "), limit);
}
