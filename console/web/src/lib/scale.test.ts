import { expect, test } from "vitest";
import { scaleOf } from "./scale";

test("without waits time is even", () => {
  const s = scaleOf(0, 1000, [{ from: 0, to: 1000 }], true);
  expect([s.at(0), s.at(250), s.at(1000), s.at(-5), s.at(2000)]).toEqual([0, 0.25, 1, 0, 1]);
  expect(s.breaks).toEqual([]);
});

test("a day of waiting does not hide a second of work", () => {
  const day = 86_400_000;
  const active = [
    { from: 0, to: 1000 },
    { from: day, to: day + 1000 },
  ];
  const s = scaleOf(0, day + 1000, active, true);
  expect(s.breaks).toEqual([{ from: 1000, to: day }]);
  expect(s.at(1000)).toBeCloseTo(1000 / 2200);
  expect(s.at(day)).toBeCloseTo(1200 / 2200);
  const even = scaleOf(0, day + 1000, active, false);
  expect(even.at(day / 2)).toBeCloseTo(0.5);
  let before = -1;
  for (let t = 0; t <= day + 1000; t += day / 50) {
    expect(s.at(t)).toBeGreaterThanOrEqual(before);
    before = s.at(t);
  }
});
