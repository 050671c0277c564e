import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

// What the blocks of the pages take for granted.
const given = `
import type * as client from "@perdure/client";
import type * as hooks from "@perdure/client/react";
import type { Root } from "react-dom/client";
declare global {
  const { Live, Perdure, ThreadStore }: typeof client;
  const { PerdureProvider, useRun, useThread }: typeof hooks;
  const perdure: client.Perdure;
  const root: Root;
  const url: string, id: string, run: string, user: string;
  const thread: string | undefined;
  const signal: AbortSignal;
  const getToken: () => Promise<string>;
  const show: (steps: client.LiveStep[]) => void;
}
`;

test("the TypeScript of the pages compiles with the package", () => {
  const dir = mkdtempSync(join(root, ".docs-")); // the package finds itself by its name
  try {
    const files = ["given.d.ts"];
    const write = (name: string, text: string) => writeFileSync(join(dir, name), text);
    for (const page of ["../../docs/typescript.md", "README.md"]) {
      for (const [, kind, code] of readFileSync(join(root, page), "utf8").matchAll(/^```(tsx?)\n(.*?)^```$/gms)) {
        const name = `block${files.length}.${kind}`;
        files.push(name);
        write(name, `${code}\nexport {}; // of ${page}\n`);
      }
    }
    expect(files.length).toBeGreaterThan(8);
    write("given.d.ts", given);
    const compilerOptions = { target: "ES2022", lib: ["ES2023", "DOM", "DOM.Iterable", "DOM.AsyncIterable"], module: "NodeNext", jsx: "react-jsx", strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: true, noEmit: true, types: ["node"] };
    write("tsconfig.json", JSON.stringify({ compilerOptions, files }));
    let said = "";
    try {
      execFileSync(join(root, "node_modules/.bin/tsc"), ["-p", dir, "--pretty", "false"], { cwd: dir, encoding: "utf8" });
    } catch (error) {
      said = (error as { stdout: string }).stdout;
    }
    expect(said).toBe("");
  } finally {
    rmSync(dir, { recursive: true });
  }
});
