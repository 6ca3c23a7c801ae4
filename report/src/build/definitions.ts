// Build step: what a label means is the text of docs/reference/metrics.md.
import { readFileSync } from "node:fs";
import type { Plugin } from "vite";

/** The definition of a key, as the page shows it. */
export interface Definition {
  symbol: string;
  formula: string;
  unit: string;
  meaning: string;
}

/** Reads the tables of the page that have a column "key" and one of "Meaning". */
export function readDefinitions(page: string): Record<string, Definition> {
  const found: Record<string, Definition> = {};
  let head: string[] = [];
  for (const line of page.split("\n")) {
    if (!line.startsWith("|")) {
      head = [];
      continue;
    }
    const cells = line.replaceAll("\\|", "\u0000").split("|").slice(1, -1).map((c) => c.replaceAll("\u0000", "|").trim());
    if (head.length === 0) {
      head = cells.map((c) => c.toLowerCase());
      continue;
    }
    const cell = (name: string): string => (cells[head.indexOf(name)] ?? "").replaceAll("`", "");
    const keys = head.indexOf("key") < 0 ? "" : (cells[head.indexOf("key")] ?? "");
    if (head.indexOf("meaning") < 0 || keys === "" || /^-+$/.test(keys)) continue;
    const names = [...keys.matchAll(/`([^`]+)`/g)].map((m) => m[1] ?? "");
    // "`F` of `windows`": the last one is the table.
    const table = / of `(\w+)`$/.test(keys) ? `${names.pop()}.` : "";
    const symbols = cell("symbol").split(",").map((s) => s.trim());
    names.forEach((name, i) => {
      found[table + name] ??= {
        symbol: symbols[i] ?? symbols[0] ?? "",
        formula: cell("formula"),
        unit: cell("unit"),
        meaning: cell("meaning"),
      };
    });
  }
  return found;
}

const NAME = "virtual:definitions";

/** Makes them a module. */
export function definitions(file: string): Plugin {
  return {
    name: "definitions",
    resolveId: (id) => (id === NAME ? `\0${NAME}` : null),
    load(id) {
      if (id !== `\0${NAME}`) return null;
      const path = new URL(`../../${file}`, import.meta.url);
      return `export default ${JSON.stringify(readDefinitions(readFileSync(path, "utf8")))}`;
    },
  };
}
