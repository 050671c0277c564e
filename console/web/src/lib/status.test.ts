import { expect, test } from "vitest";
import { controls, type Status, statusLook, type Why, whyTone, whyWhen } from "./status";

const now = Date.parse("2026-01-02T15:00:00Z");
const when = (why: Partial<Why>) => whyWhen({ state: "sleep", text: "", ...why }, now);

test("a thread that waits says until when, or for how long", () => {
  expect(when({ until: "2026-01-02T15:03:00Z" })).toBe("in 3m");
  expect(when({ state: "retry", until: "2026-01-02T15:03:00Z", attempt: 3, attempts: 5 })).toBe("next attempt in 3m");
  expect(when({ state: "person", since: "2026-01-02T14:50:00Z" })).toBe("for 10m");
  expect(when({ state: "person", since: "2026-01-02T14:50:00Z", until: "2026-01-02T14:55:00Z" })).toBe("for 10m");
  expect(when({ state: "person", since: "2026-01-02T14:50:00Z", until: "2026-01-02T15:30:00Z" })).toBe("expires in 30m");
  expect(when({ state: "person", since: "2026-01-02T15:00:00Z" })).toBe("");
  expect(when({ state: "working", since: "2026-01-02T14:50:00Z", until: "2026-01-02T15:03:00Z" })).toBe("");
});

test("a thread with an open ask asks, another waits", () => {
  expect([statusLook("suspended", 1).word, statusLook("suspended").word, statusLook("").word]).toEqual(["asks", "waits", "idle"]);
});

test("only controls that make sense are offered", () => {
  expect([controls("running"), controls("paused"), controls("failed"), controls("idle")]).toEqual([["pause", "cancel"], ["resume", "cancel"], ["retry", "again"], []]);
});

test("a status that is not known looks like nothing special", () => {
  for (const name of ["constructor", "__proto__", "new"]) expect([statusLook(name as Status).tone, whyTone({ state: name, text: "" } as unknown as Why)]).toEqual(["idle", "idle"]);
});
