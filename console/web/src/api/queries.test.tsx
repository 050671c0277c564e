// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { expect, test, vi } from "vitest";
import { useDoing } from "@/pages/operations/queries";
import { queryClient, useWrite } from "./queries";

const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={queryClient}>{children}</QueryClientProvider>;

test("a second click begins nothing before the first has ended", async () => {
  const ends: (() => void)[] = [];
  const write = vi.fn((_: string) => new Promise<void>((end) => ends.push(end)));
  const settled = vi.fn();
  const { result } = renderHook(() => useWrite({ mutationFn: write, onSettled: settled }), { wrapper });
  const click = (what: string) => act(async () => result.current.mutate(what));
  act(() => {
    result.current.mutate("one");
    result.current.mutate("bounced");
  });
  await click("still busy");
  await act(async () => ends[0]!());
  expect(settled).toHaveBeenCalledTimes(1);
  await click("two");
  expect(write.mock.calls.map(([what]) => what)).toEqual(["one", "two"]);
});

test("several things are done at a time, and each of them once", async () => {
  const ends: (() => void)[] = [];
  const write = vi.fn((_: { run: string }) => new Promise<void>((end) => ends.push(end)));
  const { result } = renderHook(() => useDoing(() => "", "", write), { wrapper });
  const click = (run: string) => act(async () => result.current.mutate({ run }));
  await click("one");
  await click("two");
  await click("one");
  await act(async () => ends[1]!());
  await click("one");
  await click("two");
  expect(write.mock.calls.map(([{ run }]) => run)).toEqual(["one", "two", "two"]);
});
