const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

let ahead = 0;

/** Learns the server's time from the header Date of a response. A few seconds make no difference. */
export function learnTime(date: string | null) {
  const off = Date.parse(date ?? "") - Date.now();
  if (!Number.isNaN(off)) ahead = Math.abs(off) < 5 * second ? 0 : off;
}

/** The time now by the server's clock, which all times that are shown are of. */
export const serverNow = () => Date.now() + ahead;

/** A length of time in one or two units: 340 ms, 2.4 s, 1m 20s, 3h 5m, 2d. */
export function duration(ms: number): string {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1) return ms === 0 ? "0 ms" : `${Math.round(ms * 1000)} µs`;
  if (ms < second) return `${Math.round(ms)} ms`;
  if (ms < 10 * second) return `${(ms / second).toFixed(1)} s`;
  if (ms < minute) return `${Math.floor(ms / second)} s`;
  if (ms < hour) return pair(ms, minute, "m", second, "s");
  if (ms < day) return pair(ms, hour, "h", minute, "m");
  return pair(ms, day, "d", hour, "h");
}

function pair(ms: number, big: number, bigUnit: string, small: number, smallUnit: string): string {
  const rest = Math.floor((ms % big) / small);
  return `${Math.floor(ms / big)}${bigUnit}${rest ? ` ${rest}${smallUnit}` : ""}`;
}

/** One unit only, for lists: now, 12s, 5m, 3h, 2d. */
export function age(ms: number): string {
  const past = Math.abs(ms);
  if (past < second) return "now";
  if (past < minute) return `${Math.floor(past / second)}s`;
  if (past < hour) return `${Math.floor(past / minute)}m`;
  if (past < day) return `${Math.floor(past / hour)}h`;
  return `${Math.floor(past / day)}d`;
}

/** "5m ago" or "in 5m". */
export function relative(to: number, now: number): string {
  const ms = now - to;
  if (Math.abs(ms) < second) return "now";
  return ms > 0 ? `${age(ms)} ago` : `in ${age(ms)}`;
}

const two = (n: number) => String(n).padStart(2, "0");

/** The time of day, with the date if it is another day. */
export function clock(at: number, now: number): string {
  const d = new Date(at);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return d.toDateString() === new Date(now).toDateString() ? time : `${date(d)} ${time}`;
}

const date = (d: Date) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;

/** The exact local time with its zone. */
export function exact(at: number): string {
  const d = new Date(at);
  const zone = Intl.DateTimeFormat("en-US", { timeZoneName: "short" }).formatToParts(d).find((p) => p.type === "timeZoneName")?.value;
  return `${date(d)} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, "0")} ${zone ?? ""}`.trim();
}
