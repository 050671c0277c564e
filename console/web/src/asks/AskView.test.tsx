// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { type ReactNode, StrictMode } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keys, queryClient } from "@/api/queries";
import { draftKey } from "@/app/draft";
import type { Ask } from "@/lib/ask";
import { useAnswerParts } from "./Answer";
import { Closed } from "./AskView";

const ask: Ask = { id: "a", thread: "t", run: "r", path: "/p", status: "open", asked: "2026-01-02T00:00:00Z", decisions: ["approve", "reject"] };
const fold = { open: 1, folded: 0, unfold: () => {} };

beforeEach(() => {
  queryClient.setQueryData(keys.me(), { subject: "ann", scopes: ["answer"] });
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("lost")));
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

function Open({ ask }: { ask: Ask }) {
  const { buttons, panel } = useAnswerParts(ask, { fold });
  return (
    <>
      {panel}
      {buttons}
    </>
  );
}

async function show(page: ReactNode) {
  cleanup();
  const router = createRouter({ routeTree: createRootRoute({ component: () => page }), history: createMemoryHistory() });
  render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </StrictMode>,
  );
}

const enabled = async (name: RegExp | string) => {
  const button = await screen.findByRole<HTMLButtonElement>("button", { name });
  await vi.waitFor(() => expect(button.disabled).toBe(false), 5000);
  return button;
};

test.each([[["continue"], /continue/], [["approve"], /Approve/], [["reject"], "Reject"], [[], "Send the answer"]])("an ask that takes only %j has a button", async (decisions, name) => {
  await show(<Open ask={{ ...ask, decisions }} />);
  await enabled(name);
});

/** Rejects with these words, and loses the response; then leaves the page. */
async function lose(words: string, of = ask) {
  await show(<Open ask={of} />);
  fireEvent.click(await enabled(/Reject/));
  fireEvent.change(await screen.findByLabelText("Why"), { target: { value: words } });
  fireEvent.click(screen.getAllByRole("button", { name: "Reject" }).at(-1)!);
}

const rejected = (message: string): Ask => ({ ...ask, status: "answered", answer: { decision: "reject", message, by: "ann" } });
const drafts = () => Object.keys(sessionStorage);

test("an answer whose response was lost is no other answer than the one that was taken", async () => {
  await lose("not ours");
  await show(<Closed ask={rejected("not ours")} text="Rejected" />);
  await screen.findByText("not ours");
  expect(screen.queryByText(/was not (sent|taken)/)).toBeNull();
  expect(drafts()).toEqual([]);
});

test("an answer that came too late was not taken, and what was written since was not sent", async () => {
  await lose("not ours");
  await show(<Closed ask={rejected("too late")} text="Rejected" />);
  await screen.findByText("Your answer was not taken.");
  await screen.findByText("not ours");

  await show(<Open ask={ask} />);
  fireEvent.change(await screen.findByLabelText("Why"), { target: { value: "not ours, ask Bo" } });
  await show(<Closed ask={rejected("not ours")} text="Rejected" />);
  await screen.findByText(/It was not sent/);
  await screen.findByText("not ours, ask Bo");
});

test("what was written after an answer that turns out to be taken is kept", async () => {
  const other = { ...ask, id: "other" };
  const taken = { ...rejected("not ours"), id: "other" };
  let answers = () => {};
  const back = new Promise<void>((resolve) => (answers = resolve));
  vi.stubGlobal("fetch", async (to: string, init?: RequestInit) => {
    if (init?.method === "POST" || !to.endsWith("/asks/other")) throw new TypeError("lost");
    await back;
    return new Response(JSON.stringify(taken), { headers: { "Content-Type": "application/json" } });
  });
  await lose("not ours", other);
  await vi.waitFor(() => expect(screen.getAllByRole<HTMLButtonElement>("button", { name: "Reject" }).at(-1)!.disabled).toBe(false), 5000);
  fireEvent.change(screen.getByLabelText("Why"), { target: { value: "not ours, ask Bo" } });
  answers();
  await vi.waitFor(() => expect(queryClient.getQueryData<Ask>(keys.ask("other"))?.status).toBe("answered"), 5000);
  await show(<Closed ask={taken} text="Rejected" />);
  await screen.findByText("not ours, ask Bo");
});

test("one of two answers that were begun is discarded", async () => {
  sessionStorage.setItem(draftKey({ subject: "ann" }, "ask a"), JSON.stringify({ message: "no", values: { edit: { text: '"changed"' } } }));
  await show(<Closed ask={rejected("too late")} text="Rejected" />);
  await screen.findByText("no");
  fireEvent.click(screen.getAllByRole("button", { name: "Discard" })[0]!);
  expect(screen.queryByText("no")).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Discard" }));
  expect(screen.queryByText('"changed"')).toBeNull();
  expect(drafts()).toEqual([]);
});
