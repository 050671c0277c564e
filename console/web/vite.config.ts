import { fileURLToPath } from "node:url";
import tailwind from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const server = process.env.PERDURE_SERVER ?? "http://127.0.0.1:7373";

/** Has the page load src/early.ts beside its main script, without waiting for anything. */
const early = (): Plugin => ({
  name: "early",
  transformIndexHtml: {
    order: "post",
    handler: (_, { bundle }) => {
      const file = Object.values(bundle ?? {}).find((one) => one.name === "early");
      return file && [{ tag: "script", attrs: { type: "module", async: true, fetchpriority: "high", src: `/console/${file.fileName}` }, injectTo: "head" }];
    },
  },
});

export default defineConfig({
  base: "/console/",
  plugins: [react(), tailwind(), early()],
  resolve: {
    alias: {
      "@": fileURLToPath(new URL("./src", import.meta.url)),
      "@perdure/client": fileURLToPath(new URL("../../clients/typescript/src/index.ts", import.meta.url)),
    },
  },
  // index.html names the assets by the base path, which the server may replace. Chunks find each
  // other relative to themselves.
  experimental: {
    renderBuiltUrl: (name, { hostType }) => (hostType === "html" ? `/console/${name}` : { relative: true }),
  },
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    target: ["chrome123", "firefox121", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 800,
    // What pages share is one file: each file more is a request more before anything is shown.
    rolldownOptions: { input: ["index.html", "src/early.ts"], output: { codeSplitting: { groups: [{ name: "common", minShareCount: 2 }] } } },
  },
  server: { proxy: { "/v1": { target: server, changeOrigin: true } } },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
