import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";

const dist = new URL("../../dist/", `file://${import.meta.dirname}/`);

test("what the first page loads is at most 250 kB when it is compressed", () => {
  const page = readFileSync(new URL("index.html", dist), "utf8");
  const assets = [...page.matchAll(/(?:src|href)="\/console\/(assets\/[^"]+)"/g)].map((m) => m[1]!);
  expect(assets.length).toBeGreaterThan(1);
  const size = assets.reduce((sum, name) => sum + gzipSync(readFileSync(new URL(name, dist))).length, 0);
  expect(size).toBeLessThan(250_000);
});
