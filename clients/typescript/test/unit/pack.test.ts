import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

test("the package has what is built, and nothing else", () => {
  const [packed] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })) as { files: { path: string }[] }[];
  const modules = ["client", "index", "live", "operations", "problem", "react", "request", "store", "stream", "types", "wait"];
  expect(packed?.files.map((file) => file.path).sort()).toEqual(["LICENSE", "README.md", ...modules.flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]), "package.json"].sort());
});

test("it depends on nothing, and its lock file names no host", () => {
  const manifest = JSON.parse(readFileSync(`${root}/package.json`, "utf8")) as Record<string, Record<string, string>>;
  expect(manifest.dependencies).toBeUndefined();
  for (const version of Object.values(manifest.devDependencies ?? {})) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  for (const file of Object.values(manifest.exports ?? {})) expect(existsSync(`${root}/${file}`)).toBe(true);
  expect(readFileSync(`${root}/package-lock.json`, "utf8")).not.toContain('"resolved"');
});
