import { defineConfig } from "vite";
import { definitions } from "./src/build/definitions.ts";
import { oneFile } from "./src/build/one-file.ts";

export default defineConfig({
  plugins: [definitions("../docs/reference/metrics.md"), oneFile("report.html")],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2023",
    cssCodeSplit: false,
    assetsInlineLimit: 1e9,
    modulePreload: false,
    rollupOptions: { input: "index.html", output: { codeSplitting: false } },
  },
});
