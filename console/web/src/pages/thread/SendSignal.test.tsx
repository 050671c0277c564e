// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keys, queryClient } from "@/api/queries";
import { SendSignal } from "./SendSignal";

const sent: string[] = [];

beforeEach(() => {
  queryClient.setQueryData(keys.me(), { subject: "ann", scopes: ["run"] });
  vi.stubGlobal("fetch", async (to: string, init: RequestInit) => {
    sent.push(`${to.split("/").at(-1)} ${init.body} ${new Headers(init.headers).get("Idempotency-Key")}`);
    throw new TypeError("lost");
  });
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  sessionStorage.clear();
  sent.length = 0;
});

const paid = { name: "paid", seq: 3 };
const shipped = { name: "shipped", seq: 4 };

function open() {
  const page = (awaited: { name: string; seq: number }[]) => (
    <QueryClientProvider client={queryClient}>
      <SendSignal thread="t" awaited={awaited} />
    </QueryClientProvider>
  );
  const { rerender } = render(page([paid, shipped]));
  fireEvent.click(screen.getByRole("button", { name: "Send the signal" }));
  return (...awaited: { name: string; seq: number }[]) => rerender(page(awaited));
}

const button = () => screen.getByRole<HTMLButtonElement>("button", { name: "Send" });

async function send() {
  const before = sent.length;
  fireEvent.click(button());
  await vi.waitFor(() => expect(sent.length).toBe(before + 1));
  await screen.findByRole("button", { name: "Send" });
}

test("a value goes to no other signal than the one that it was written for", async () => {
  const now = open();
  fireEvent.change(screen.getByLabelText("Value"), { target: { value: "42" } });
  now(shipped);
  expect(screen.getByRole("alert").textContent).toContain("no longer waits for the signal paid.");
  expect([button().disabled, screen.getByLabelText<HTMLTextAreaElement>("Value").value]).toEqual([true, "42"]);
  now();
  screen.getByRole("alert");
  now(shipped);
  fireEvent.change(screen.getByLabelText("Signal"), { target: { value: "shipped" } });
  expect(screen.queryByRole("alert")).toBeNull();
  await send();
  expect(sent[0]).toContain('shipped {"value":42}');
});

test("a signal that is sent again is one for the same wait, and another for a later one", async () => {
  const now = open();
  await send();
  await send();
  now({ name: "paid", seq: 9 });
  fireEvent.click(button());
  expect(sent).toHaveLength(2); // what was sent for the wait before may have been taken
  fireEvent.click(button(), { detail: 2 });
  await send();
  expect(sent).toHaveLength(3);
  expect(sent[1]).toBe(sent[0]);
  expect(sent[2]).not.toBe(sent[0]);
});
