import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import { build, type Rolldown } from "vite";
import { expect, test } from "vitest";

const source = (name: string) => fileURLToPath(new URL(`../../src/${name}`, import.meta.url));

test("requests, streams and hooks take at most 10 kB, compressed", async () => {
  const built = (await build({
    configFile: false,
    logLevel: "silent",
    build: { write: false, minify: true, lib: { entry: [source("index.ts"), source("react.ts")], formats: ["es"] }, rolldownOptions: { external: ["react"] } },
  })) as Rolldown.RolldownOutput | Rolldown.RolldownOutput[];
  const code = [built].flat().flatMap(({ output }) => output.map((file) => (file.type === "chunk" ? file.code : "")));
  const size = gzipSync(code.join("\n"), { level: 9 }).length;
  console.info(`@perdure/client: ${size} bytes compressed`);
  expect(code.join("")).toContain("Last-Event-ID");
  expect(size).toBeLessThanOrEqual(10_000);
});
