// @vitest-environment happy-dom
import { act, render, screen } from "@testing-library/react";
import type { ComponentType } from "react";
import { afterEach, expect, test, vi } from "vitest";
import { entryOf, newBuild, reloadFor } from "./build";
import { type Held, lazily, loadMissing, MissingParts } from "./lazily";

afterEach(() => {
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

test("a file that does not come leaves what stands in for it, until it comes", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new Error("no network")));
  let there = false;
  const Part = lazily(
    async () => {
      if (!there) throw new Error("lost");
      return { default: ({ text }: { text: string }) => <b>{text}</b> };
    },
    ({ text }) => <i>{text} for now</i>,
  );
  render(
    <>
      <MissingParts />
      <Part text="hello" />
    </>,
  );
  await screen.findByRole("alert");
  screen.getByText("hello for now");
  await act(loadMissing);
  screen.getByText("hello for now");
  there = true;
  await act(async () => screen.getByRole("button", { name: "Try again" }).click());
  await screen.findByText("hello");
  expect(screen.queryByRole("alert")).toBeNull();
});

test("what stands in stays while someone writes in it", async () => {
  let come: (file: { default: ComponentType }) => void = () => {};
  const Part = lazily(
    () => new Promise<{ default: ComponentType }>((resolve) => (come = resolve)),
    ({ hold }: Held) => <input aria-label="stand-in" onFocus={() => hold(true)} onBlur={() => hold(false)} />,
  );
  render(<Part />);
  const input = screen.getByLabelText("stand-in");
  act(() => input.focus());
  await act(async () => come({ default: () => <b>loaded</b> }));
  expect(document.activeElement).toBe(screen.getByLabelText("stand-in"));
  act(() => input.blur());
  screen.getByText("loaded");
});

test("a page loads itself again for a new build, once", async () => {
  const page = (hash: string) => `<html><script type="module" crossorigin src="/console/assets/index-${hash}.js"></script>`;
  expect([entryOf(page("a")), entryOf("<p>down</p>")]).toEqual(["/console/assets/index-a.js", undefined]);
  const served = (text: string) => vi.stubGlobal("fetch", () => Promise.resolve(new Response(text)));
  served(page("a"));
  expect(await newBuild("/console/assets/index-a.js")).toBeUndefined();
  served(page("b"));
  const entry = await newBuild("/console/assets/index-a.js");
  expect(entry).toBe("/console/assets/index-b.js");
  const reload = vi.fn();
  reloadFor(entry!, reload);
  reloadFor(entry!, reload);
  expect(reload).toHaveBeenCalledTimes(1);
});
