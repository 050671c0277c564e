// @vitest-environment happy-dom
import { renderHook, waitFor } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { perdure } from "@/api/client";
import { useThreadLog } from "./log";

test("what was held for a reader that has left is not shown to the next", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("lost")));
  const event = (seq: number) => ({ event: { thread: "t", seq, kind: "step", time: "2026-01-02T15:04:05Z" } }) as const;
  const follow = vi.spyOn(perdure, "follow").mockImplementation(async function* () {
    yield event(1);
    yield event(2);
    await new Promise(() => {});
  });
  const { result } = renderHook(() => useThreadLog("t"), { reactStrictMode: true }); // which leaves and comes back
  await waitFor(() => expect(result.current.events.length).toBeGreaterThan(1));
  expect(follow).toHaveBeenCalledTimes(2);
  expect(result.current.events.map(({ seq }) => seq)).toEqual([1, 2]);
});
