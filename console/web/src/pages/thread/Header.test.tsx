// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, expect, test, vi } from "vitest";
import type { Schemas } from "@/api/client";
import { keys, queryClient } from "@/api/queries";
import { Header } from "./Header";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

test("what is confirmed is done to the run for which it was asked", async () => {
  const posted: string[] = [];
  vi.stubGlobal("fetch", async (to: string, init: RequestInit) => {
    if (init.method === "POST") posted.push(new URL(to).pathname);
    return new Response("{}", { headers: { "Content-Type": "application/json" } });
  });
  queryClient.setQueryData(keys.me(), { subject: "ann", scopes: ["run"] });
  const run = (id: string, status: string) => ({ thread: "t", id, status, flow: "f", created: "2026-01-02T00:00:00Z" }) as Schemas["Run"];
  let setRuns: (runs: Schemas["Run"][]) => void = () => {};
  const Page = () => {
    const [runs, set] = useState([run("first", "running")]);
    setRuns = set;
    const thread = { id: "t", status: "running", created: "2026-01-02T00:00:00Z", runs } as Schemas["Thread"];
    return <Header thread={thread} run={runs.at(-1)} awaited={[]} onRun={() => {}} />;
  };
  const router = createRouter({ routeTree: createRootRoute({ component: Page }), history: createMemoryHistory() });
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router as never} />
    </QueryClientProvider>,
  );
  fireEvent.click(await screen.findByRole("button", { name: "Cancel" }));
  fireEvent.change(screen.getByLabelText("Reason"), { target: { value: "not needed" } });
  act(() => setRuns([run("first", "running"), run("second", "queued")]));
  screen.getByText(/^Run 1 of 2: f\. /);
  fireEvent.click(screen.getByRole("button", { name: "Cancel the run" }));
  await vi.waitFor(() => expect(posted).toEqual(["/v1/threads/t/runs/first/cancel"]));
});
