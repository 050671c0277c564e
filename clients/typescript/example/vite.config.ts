import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const built = (name: string) => fileURLToPath(new URL(`../dist/${name}.js`, import.meta.url));

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  // Outside of this repository, npm install makes these lines unnecessary.
  resolve: { alias: { "@perdure/client/react": built("react"), "@perdure/client": built("index") } },
  build: { target: "es2022", reportCompressedSize: false },
});
