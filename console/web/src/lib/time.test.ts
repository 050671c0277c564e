import { expect, test } from "vitest";
import { age, clock, duration, learnTime, relative, serverNow } from "./time";

test("durations have one or two units", () => {
  const ms = [0, 0.095, 7, 999, 1000, 9949, 59_999, 60_000, 80_000, 3_599_999, 3_600_000, 11_100_000, 2 * 86_400_000, 90_000_000];
  expect(ms.map(duration)).toEqual(["0 ms", "95 µs", "7 ms", "999 ms", "1.0 s", "9.9 s", "59 s", "1m", "1m 20s", "59m 59s", "1h", "3h 5m", "2d", "1d 1h"]);
});

test("ages have one unit and a direction", () => {
  expect([0, 5000, 65_000, 7_200_000, 200_000_000].map(age)).toEqual(["now", "5s", "1m", "2h", "2d"]);
  expect([relative(1000, 6000), relative(60_000, 0), relative(5, 6)]).toEqual(["5s ago", "in 1m", "now"]);
});

test("a clock shows the date on other days only", () => {
  const noon = new Date(2026, 0, 2, 12, 0, 5).getTime();
  expect(clock(noon, noon + 1000)).toBe("12:00:05");
  expect(clock(noon, noon + 2 * 86_400_000)).toBe("2026-01-02 12:00:05");
});

test("a clock that is wrong by more than seconds is not believed", () => {
  const hours = (ms: number) => Math.round((ms - Date.now()) / 3_600_000);
  learnTime(new Date(Date.now() + 3 * 3_600_000).toUTCString());
  expect(hours(serverNow())).toBe(3);
  learnTime(null); // what says nothing changes nothing
  expect(hours(serverNow())).toBe(3);
  learnTime(new Date().toUTCString());
  expect(hours(serverNow())).toBe(0);
});
