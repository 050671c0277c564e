import { Problem } from "@perdure/client";
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { after, type Draft, edited, messageOf, notSent } from "./message";

test("the same text is the same message, and another text another", () => {
  expect([messageOf(undefined, "enqueue"), messageOf({ text: "  " }, "enqueue")]).toEqual([undefined, undefined]);
  const first = messageOf({ text: " yes " }, "steer")!;
  expect(first).toMatchObject({ text: "yes", policy: "steer" });
  const tried: Draft = { text: " yes ", tried: first };
  expect(messageOf(tried, "enqueue")).toBe(first);
  expect(messageOf(edited(tried, " yes "), "steer")).toBe(first);
  expect(messageOf(edited(tried, "no"), "steer")).toMatchObject({ text: "no" });
  const deleted = edited(edited(tried, ""), " yes ");
  expect(messageOf(deleted, "steer")!.key).not.toBe(first.key);
});

test("a page without HTTPS, which has no crypto.randomUUID, makes ids too", () => {
  const src = new URL("../", `file://${import.meta.dirname}/`);
  const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name) && !/\.test\./.test(name));
  expect(files.filter((name) => readFileSync(new URL(name, src), "utf8").includes("randomUUID"))).toEqual([]);
});

test("what was written while a message was under way stays", () => {
  const message = messageOf({ text: "one" }, "steer")!;
  expect(after({ text: "one", tried: message }, message)).toBeUndefined();
  expect(after(undefined, message)).toBeUndefined();
  expect(after({ text: "two" }, message)).toEqual({ text: "two" });
});

test("without a response nobody says that a message was not sent", () => {
  expect(notSent(new Problem("quota", 429))[0]).toBe("The message was not sent");
  expect(notSent(new Problem("gateway", 502))[0]).toBe("The message may not have arrived");
  expect(notSent(new Problem("offline", 0))[0]).toBe("The message may not have arrived");
});
