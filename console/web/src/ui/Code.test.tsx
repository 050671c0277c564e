// @vitest-environment happy-dom
import { act, fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { Code } from "./Code";

vi.mock("./CodeEditor", () => ({ default: () => <b>loaded</b> }));

test("what stands in for the editor stays while the window has lost the focus", async () => {
  render(<Code label="JSON" value="" onChange={() => {}} />);
  const area = screen.getByLabelText("JSON");
  act(() => area.focus());
  await act(() => Code.preload());
  fireEvent.blur(area);
  expect(document.activeElement).toBe(screen.getByLabelText("JSON"));
  act(() => area.blur());
  screen.getByText("loaded");
});
