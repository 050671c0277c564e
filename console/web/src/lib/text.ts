/** What a control character or a mark of direction looks like when it is made visible. */
function visible(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// The rule is that of internal/safe, which the command line follows (ADR 0027). A browser draws what joins
// emoji and letters, and spaces of other widths, so these stay in prose.

const odd = /[^\n\t\x20-\x7e]/;
// Controls, marks of direction, characters without a shape or a meaning, lone surrogates, the empty ones of
// braille and music, and what selects the shape of another character.
const steers = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Variation_Selector}\u2800\u{1d159}]/gu;
const overloaded = /(?<=\p{M}{4})\p{M}|(?<=^|[\n\p{Zs}])\p{M}/gu; // nothing carries them, or others do already
const spaces = /[^\P{Zs} ]/gu;
const picture = /[\p{So}\p{Sk}]$/u;
const pictureNext = /^[\p{So}\p{Sk}]/u;
const joining =
  "\\p{Script=Arabic}\\p{Script=Bengali}\\p{Script=Devanagari}\\p{Script=Gujarati}\\p{Script=Gurmukhi}\\p{Script=Kannada}\\p{Script=Khmer}\\p{Script=Malayalam}\\p{Script=Myanmar}\\p{Script=Oriya}\\p{Script=Sinhala}\\p{Script=Syriac}\\p{Script=Tamil}\\p{Script=Telugu}";
const joined = new RegExp(`[${joining}]\\p{M}*$`, "u");
const joinedNext = new RegExp(`^[${joining}]`, "u");

/** Whether a character without width only shapes its neighbours, as in emoji and some scripts. */
function shapes(char: string, before: string, after: string): boolean {
  if (char === "\ufe0e" || char === "\ufe0f") return picture.test(before);
  if (char !== "\u200c" && char !== "\u200d") return false;
  return (picture.test(before.replace(/[\ufe0f\u{1f3fb}-\u{1f3ff}]+$/u, "")) && pictureNext.test(after)) || (joined.test(before) && joinedNext.test(after));
}

/** Makes characters visible that would hide or reorder the text around them. */
export function plain(text: string): string {
  if (!odd.test(text)) return text;
  return text
    .replace(/\r\n/g, "\n")
    .replace(steers, (char, at: number, all: string) =>
      shapes(char, all.slice(Math.max(0, at - 8), at), all.slice(at + char.length, at + char.length + 2)) ? char : visible(char),
    )
    .replace(overloaded, visible);
}

/** The same where every character counts, as in what a person approves: other spaces than the ordinary one show too. */
export const precise = (text: string) => plain(text).replace(spaces, visible);

/** The name of a member. What is no plain word is in quotes, so that it cannot look like more than a name. */
export const memberName = (name: string) => (/^[A-Za-z_$][\w$.-]*$/.test(name) ? name : precise(JSON.stringify(name)));

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
  const members = Object.entries(value).map(([name, one]) => `${memberName(name)}: ${typeof one === "string" && !/["·:\n]/.test(one) ? one : JSON.stringify(one)}`);
  return precise(oneLine(members.join(" · "), limit));
}
