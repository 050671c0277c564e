// @vitest-environment happy-dom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { keys, queryClient } from "@/api/queries";
import { Composer } from "./Composer";

afterEach(cleanup);

test("the second click of a double click on Send does not stop the turn that has begun", () => {
  queryClient.setQueryData(keys.me(), { subject: "ann", scopes: ["run"] });
  const stop = vi.fn();
  const page = (busy: boolean) => (
    <QueryClientProvider client={queryClient}>
      <Composer place="chat t" busy={busy} send={async () => {}} stop={stop} />
    </QueryClientProvider>
  );
  const { rerender } = render(page(false));
  const send = screen.getByRole("button", { name: "Send" });
  rerender(page(true));
  const button = screen.getByRole("button", { name: "Stop" });
  expect(button).not.toBe(send);
  fireEvent.click(button, { detail: 2 });
  expect(stop).not.toHaveBeenCalled();
  for (const detail of [1, 0]) fireEvent.click(button, { detail }); // 0: by the keyboard
  expect(stop).toHaveBeenCalledTimes(2);
});
