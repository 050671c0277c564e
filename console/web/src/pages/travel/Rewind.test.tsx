// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { queryClient } from "@/api/queries";
import type { Entry } from "@/lib/journal";
import { RewindDialog } from "./Rewind";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const entry = (seq: number, life?: string): Entry => ({ seq, kind: "title", time: "2026-01-02T00:00:00Z", life });

test.each([
  [undefined, '"3"', true],
  ["x", '"3-x"', false],
])("a rewind of a thread with the life %s names what was seen, and moves only who still looks", async (life, tag, stays) => {
  let answer = () => {};
  const tags: unknown[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    tags.push(new Headers(init.headers).get("If-Match"));
    await new Promise<void>((resolve) => (answer = resolve));
    return new Response('{"to": 1, "seq": 4}', { headers: { "Content-Type": "application/json" } });
  });
  const onMove = vi.fn();
  const onClose = vi.fn();
  const { unmount } = render(
    <QueryClientProvider client={queryClient}>
      <RewindDialog thread="t" at={1} entries={[1, 2, 3].map((seq) => entry(seq, life))} onClose={onClose} onFork={() => {}} onMove={onMove} />
    </QueryClientProvider>,
  );
  fireEvent.click(screen.getByRole("button", { name: "Take it back" }));
  await vi.waitFor(() => expect(tags).toEqual([tag]));
  if (!stays) unmount();
  await act(async () => answer());
  await vi.waitFor(() => expect(queryClient.isMutating()).toBe(0));
  expect(onMove.mock.calls).toEqual(stays ? [[4]] : []);
  expect(onClose).toHaveBeenCalledTimes(stays ? 1 : 0);
});
