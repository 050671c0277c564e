import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/server/**/*.spec.ts"],
    root: new URL("../..", import.meta.url).pathname,
    testTimeout: 120_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
