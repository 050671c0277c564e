import { expect, test } from "vitest";
import { byName, type Event, rowsOf, signalsAwaited, type Span, standing, timelineOf } from "./timeline";

const start = Date.parse("2026-01-02T15:00:00Z");
let seq = 0;
const ev = (kind: string, at: number, more: Partial<Event> = {}): Event => ({
  thread: "t",
  seq: ++seq,
  kind,
  run: "r",
  time: new Date(start + at).toISOString(),
  ...more,
});
const events = (...list: (() => Event)[]) => {
  seq = 0;
  return list.map((make) => make());
};
const see = (spans: Span[]) => rowsOf(spans, new Set()).map((s) => `${" ".repeat(s.depth)}${s.name} ${s.segments.map((g) => `${g.look}:${g.from - start}-${g.to - start}`).join(" ")}`.trimEnd());

test("a step is as long as its function ran, and paths make a tree", () => {
  const t = timelineOf(
    events(
      () => ev("queued", 0),
      () => ev("claimed", 0, { worker: "w1" }),
      () => ev("step", 100, { path: "/bot/input", took_us: 1000 }),
      () => ev("step", 600, { path: "/bot/turn-1/reply", took_us: 500_000 }),
      () => ev("step", 900, { path: "/bot/turn-1/0-search/run", took_us: 250_000 }),
      () => ev("ended", 1000, { status: "succeeded" }),
    ),
    "r",
    start + 99_999,
  );
  expect(see(t.roots)).toEqual(["bot", " input run:99-100", " turn-1", "  reply run:100-600", "  0-search/run run:650-900"]);
  expect([t.from - start, t.to - start, t.running]).toEqual([0, 1000, false]);
});

test("a step that is made of others took as long as they did", () => {
  const t = timelineOf(
    events(
      () => ev("claimed", 0),
      () => ev("step", 12_100, { path: "/bot/turn-1/reply", took_us: 12_000_000 }),
      () => ev("step", 12_200, { path: "/bot", took_us: 0 }),
      () => ev("ended", 12_300, { status: "succeeded" }),
    ),
    "r",
    start + 99_999,
  );
  const bot = t.roots[0]!;
  expect([bot.path, bot.from - start, bot.to! - start, bot.segments]).toEqual(["/bot", 100, 12_200, []]);
});

test("waits end with what ended them, and attempts are kept apart", () => {
  const t = timelineOf(
    events(
      () => ev("claimed", 0),
      () => ev("attempt", 300, { path: "/parse", attempt: 1, took_us: 200_000, error: "locked" }),
      () => ev("attempt", 600, { path: "/parse", attempt: 2, took_us: 100_000, error: "locked" }),
      () => ev("step", 900, { path: "/parse", took_us: 100_000 }),
      () => ev("asked", 1000, { path: "/ok", ask: "a1" }),
      () => ev("timer", 1000, { path: "/nap" }),
      () => ev("suspended", 1000),
      () => ev("fired", 2000, { path: "/nap" }),
      () => ev("answered", 5000, { path: "/ok", ask: "a1" }),
    ),
    "r",
    start + 6000,
  );
  expect(see(t.roots)).toEqual(["parse failed:100-300 retry:300-500 failed:500-600 retry:600-800 run:800-900", "nap wait:1000-2000", "ok ask:1000-5000"]);
  expect(t.roots[0]?.attempts).toBe(3);
});

test("a claim without an end of the pass before it is a takeover, and shows what it cost", () => {
  const t = timelineOf(
    events(
      () => ev("claimed", 0, { worker: "w1" }),
      () => ev("step", 100, { path: "/a" }),
      () => ev("claimed", 3100, { worker: "w2" }),
      () => ev("step", 3300, { path: "/b" }),
      () => ev("suspended", 3300),
      () => ev("claimed", 9000, { worker: "w2" }),
    ),
    "r",
    start + 9500,
  );
  expect(t.takeovers).toEqual([{ from: start + 100, at: start + 3100, seq: 3, lost: "w1", worker: "w2" }]);
  expect(t.roots.map((s) => [s.name, s.replayed])).toEqual([
    ["a", true],
    ["b", true],
  ]);
  expect(t.running).toBe(true);
});

test("what is open, or only live, lasts until now", () => {
  const t = timelineOf(events(() => ev("claimed", 0), () => ev("asked", 50, { path: "/ok" })), "r", start + 700, ["/bot/turn-1/reply"]);
  expect(see(t.roots)).toEqual(["bot/turn-1/reply run:50-700", "ok ask:50-700"]);
  expect(t.roots.map((s) => s.to)).toEqual([undefined, undefined]);
});

test("a rewind takes back what came after its point", () => {
  const list = events(() => ev("step", 0, { path: "/a" }), () => ev("step", 0, { path: "/b" }), () => ev("rewound", 0, { to: 1 }), () => ev("step", 0, { path: "/c" }));
  expect(standing(list).map((e) => e.path ?? e.kind)).toEqual(["/a", "rewound", "/c"]);
});

test("closed rows hide what is inside of them", () => {
  const t = timelineOf(events(() => ev("step", 1, { path: "/a/x" }), () => ev("step", 2, { path: "/a/y" }), () => ev("step", 3, { path: "/b" })), "r", start);
  expect(rowsOf(t.roots, new Set(["/a"])).map((s) => s.name)).toEqual(["a", "b"]);
});

test("numbers in names count by their value", () => {
  const names = ["/a", "/a/2", "/a/10", "/a/10/x", "/a1b10", "/a01b11", "/a10b1", "/b-2", "/b-02", "/b-002-x", "/b-03", "/b-", "/b", "/1", "/"];
  const collator = new Intl.Collator("en", { numeric: true });
  const sorted = [...names].sort(byName);
  expect(sorted).toEqual(["/", "/1", "/a", "/a/2", "/a/10", "/a/10/x", "/a1b10", "/a01b11", "/a10b1", "/b", "/b-", "/b-02", "/b-2", "/b-002-x", "/b-03"]);
  for (const a of names) for (const b of names) expect(Math.sign(byName(a, b)) + Math.sign(byName(b, a))).toBe(0);
  const steps = Array.from({ length: 120 }, (_, n) => `/step-${n}`);
  expect([...steps].reverse().sort(byName)).toEqual([...steps].sort(collator.compare));
});

test("a run waits for signals that have not come", () => {
  const list = events(
    () => ev("waiting", 0, { path: "/a", name: "paid" }),
    () => ev("waiting", 0, { path: "/b", name: "sent" }),
    () => ev("waiting", 0, { path: "/c", child: "t2" }),
    () => ev("waiting", 0, { path: "/d", name: "paid", run: "other" }),
    () => ev("waiting", 1, { path: "/e", name: "sent" }),
    () => ev("received", 5, { path: "/a" }),
    () => ev("ended", 9, { run: "other" }),
  );
  expect([signalsAwaited(list, "r"), signalsAwaited(list, "other")]).toEqual([[{ name: "sent", seq: 2 }], []]);
  const again = [...list, { ...list[0]!, seq: 9 }];
  expect(signalsAwaited(again, "r")).toContainEqual({ name: "paid", seq: 9 });
});
