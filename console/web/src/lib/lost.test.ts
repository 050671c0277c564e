import { Problem } from "@perdure/client";
import { expect, test } from "vitest";
import { failure, failureText } from "./lost";

test("without a response of the server, nobody says that a write has failed", () => {
  const said = (error: Error) => [failure("It was not sent", error, "It", "Try again.")[0], failureText(error, "Try again.")];
  for (const lost of [new Problem("offline", 0), new Problem("gateway", 502, { detail: "POST /v1/runs may have had its effect." })])
    expect(said(lost)).toEqual(["It may not have arrived", "The request may not have arrived. Try again."]);
  for (const refused of [new Problem("quota", 429, { detail: "full" }), new Problem("gateway", 413, { detail: "full" }), new Error("full")]) expect(said(refused)).toEqual(["It was not sent", "full"]);
  expect(failureText(null, "Try again.")).toBeUndefined();
});
