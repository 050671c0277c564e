// @vitest-environment happy-dom
import type { News } from "@perdure/client";
import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { queryClient } from "@/api/queries";
import type { ThreadRow } from "@/lib/threadlist";
import { tooMany, useThreadList } from "./live";

let tell: (news: News) => void = () => {};
vi.mock("@/app/news", () => ({ useNews: (reader: typeof tell) => void (tell = reader) }));

const row = (id: string, updated: number, status = "succeeded") =>
  ({ id, cursor: id, status, created: "2026-01-02", updated: `2026-01-02T00:00:0${updated}Z` }) as ThreadRow;

/** What the server answers, page by page, once it is let. */
let pages: Record<string, { threads: ThreadRow[]; next?: string }>;
let gate: Promise<void>;

beforeEach(() => {
  vi.useFakeTimers();
  gate = Promise.resolve();
  vi.stubGlobal("fetch", async (to: string) => {
    const after = new URL(to).searchParams.get("after") ?? "";
    if (after === "") await gate;
    return new Response(JSON.stringify(pages[after]), { headers: { "Content-Type": "application/json" } });
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("too many changes have the list read anew, and none is dropped before that", async () => {
  pages = { "": { threads: [row("a", 1, "running")], next: "a" }, a: { threads: [row("b", 1)] } };
  const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={queryClient}>{children}</QueryClientProvider>;
  const { result } = renderHook(() => useThreadList({ q: "", status: "", flow: "", user: "" }, { current: { first: 0, last: -1 } }), { wrapper });
  const pass = () => act(() => vi.advanceTimersByTimeAsync(300));
  const hear = (...rows: ThreadRow[]) => {
    for (const thread of rows) tell({ kind: "thread", thread });
    return pass();
  };
  const statusOf = (id: string) => result.current.rows.find((one) => one.id === id)?.status;
  await pass();
  expect(statusOf("a")).toBe("running");

  let open = () => {};
  gate = new Promise((resolve) => (open = resolve));
  await hear(row("a", 5), row("new", 5, "queued"), ...Array.from({ length: tooMany }, (_, n) => row(`x${n}`, 5)));
  await act(async () => void result.current.query.fetchNextPage());
  await pass();
  expect(result.current.query.data?.pages).toHaveLength(2);
  expect([statusOf("a"), statusOf("new"), result.current.rows.length]).toEqual(["succeeded", "queued", tooMany + 3]);

  await hear(...Array.from({ length: tooMany + 1 }, (_, n) => row(`y${n}`, 5)));
  pages = { "": { threads: [row("a", 5)], next: "a" }, a: { threads: [row("b", 1)] } };
  await hear(row("late", 6, "queued"));
  open();
  await pass();
  expect(result.current.rows.map(({ id }) => id).sort()).toEqual(["a", "b", "late"]);
});

test("a list that is shown again is there at once, and is read anew", async () => {
  const list = (...threads: ThreadRow[]) => ({ "": { threads: threads.map((one) => ({ ...one, flow: "f" })) } });
  pages = list(row("a", 1, "running"));
  const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={queryClient}>{children}</QueryClientProvider>;
  const show = (status = "") => renderHook((status: string) => useThreadList({ q: "", status, flow: "f", user: "" }, { current: { first: 0, last: -1 } }), { wrapper, initialProps: status });
  const pass = () => act(() => vi.advanceTimersByTimeAsync(300));
  const first = show();
  await pass();
  first.unmount();

  const ids = () => again.result.current.rows.map(({ id, status }) => `${id} ${status}`);
  pages = list(row("b", 2), row("a", 2));
  const again = show();
  expect(ids()).toEqual(["a running"]);
  await pass();
  expect(ids()).toEqual(["a succeeded", "b succeeded"]);

  again.rerender("failed"); // another list in the meantime
  pages = list(row("c", 3));
  again.rerender("");
  expect(ids()).toEqual(["a succeeded", "b succeeded"]);
  await pass();
  expect(ids()).toEqual(["c succeeded"]);
});
