// @vitest-environment happy-dom
import { act, renderHook } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { useTalk } from "./talk";

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a gateway that refuses is told while it is asked again, ever more slowly", async () => {
  vi.useFakeTimers();
  const asked: string[] = [];
  let login = true;
  vi.stubGlobal("fetch", async (to: string) => {
    asked.push(to);
    if (login) return new Response("<html>log in", { status: 403 });
    if (to.includes("/events")) return new Promise(() => {});
    return new Response(JSON.stringify(to.endsWith("/messages") ? { seq: 1, messages: [] } : { id: "t", seq: 1, runs: [] }), { headers: { "Content-Type": "application/json" } });
  });
  const { result } = renderHook(() => useTalk("t"));
  await act(() => vi.advanceTimersByTimeAsync(1));
  expect(result.current).toMatchObject({ ready: false, problem: { type: "gateway", status: 403 } });
  await act(() => vi.advanceTimersByTimeAsync(60_000));
  expect(asked.length).toBeLessThan(12);
  login = false;
  await act(() => vi.advanceTimersByTimeAsync(10_000));
  expect(result.current).toMatchObject({ ready: true, problem: undefined });
});
