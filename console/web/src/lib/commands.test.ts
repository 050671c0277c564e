import { expect, test } from "vitest";
import { cliOf, curlOf, quoted } from "./commands";

test("words are quoted so that a shell takes them as they are", () => {
  expect([quoted("order-7"), quoted("a b"), quoted("it's"), quoted("$(rm)"), quoted("")]).toEqual(["order-7", "'a b'", `'it'\\''s'`, "'$(rm)'", "''"]);
});

test("commands name the server", () => {
  expect(cliOf(["events", "--follow"], "a b", "http://h:1")).toBe("perdure events --follow --server http://h:1 'a b'");
  expect(cliOf(["show"], "--server=http:", "http://h:1")).toBe("perdure show --server http://h:1 -- --server=http:");
  expect(curlOf("GET", "/v1/me", undefined, "http://h:1")).toBe('curl -H "Authorization: Bearer $PERDURE_TOKEN" http://h:1/v1/me');
  expect(curlOf("POST", "/v1/x", { a: "b c" }, "http://h:1")).toBe(`curl -H "Authorization: Bearer $PERDURE_TOKEN" --json '{"a":"b c"}' http://h:1/v1/x`);
});

test("a command may be about more than one id", () => {
  expect(cliOf(["cancel"], ["t", "r"], "http://h:1")).toBe("perdure cancel --server http://h:1 t r");
  expect(cliOf(["cancel"], ["t", "-r"], "http://h:1")).toBe("perdure cancel --server http://h:1 -- t -r");
});
