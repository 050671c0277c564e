// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { expect, test, vi } from "vitest";
import { queryClient, useWrite } from "./queries";

test("a second click begins nothing before the first has ended", async () => {
  const ends: (() => void)[] = [];
  const write = vi.fn((_: string) => new Promise<void>((end) => ends.push(end)));
  const settled = vi.fn();
  const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={queryClient}>{children}</QueryClientProvider>;
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
