// What the report knows, read part by part.
import { signal } from "@preact/signals";
import { part } from "./load.ts";
import { Table } from "./table.ts";
import { num, obj, objs, str, strs, type Obj } from "./values.ts";

/** Names of tables. */
export type TableName = "functions" | "lines" | "loops" | "objects";

/** All data. */
export interface Model {
  run: Obj;
  summary: Obj;
  trace: Obj;
  manifest: Obj;
  tables: Record<TableName, Table>;
  heat: Obj;
  time: Obj;
  location: Obj;
  /** By way of whom windows began. */
  paths: Obj;
  /** Tables and trees are still to be unpacked. */
  loading: boolean;
  /** Null: the report was made without source. */
  sources: Obj | null;
}

/** A cache of the machine, or a common one. */
export interface Cache {
  name: string;
  bytes: number;
}

export const model = signal<Model | null>(null);
export const failure = signal<string>("");

/** Reads all parts. */
export async function load(): Promise<void> {
  try {
    const run = obj(await part("run"));
    if (Object.keys(run).length === 0) throw new Error("the file holds no data: it is the viewer alone");
    const summary = obj(run["summary"]);
    const empty = new Table(null);
    const first: Model = {
      run,
      summary,
      trace: obj(summary["trace"]),
      manifest: obj(run["manifest"]),
      loading: true,
      tables: { functions: empty, lines: empty, loops: empty, objects: empty },
      heat: {},
      time: {},
      location: {},
      paths: {},
      sources: null,
    };
    model.value = first;
    // The browser draws that before it unpacks tables of some megabytes.
    await new Promise((r) => setTimeout(r, 0));
    const [functions, lines, loops, objects] = await Promise.all(["functions", "lines", "loops", "objects"].map(part));
    const [heat, time, location, sources, paths] = await Promise.all(["heat_map", "time_zoom", "location_zoom", "sources", "call_paths"].map(part));
    model.value = {
      ...first,
      loading: false,
      tables: { functions: new Table(functions), lines: new Table(lines), loops: new Table(loops), objects: new Table(objects) },
      heat: obj(heat),
      time: obj(time),
      location: obj(location),
      paths: obj(paths),
      sources: sources === null ? null : obj(sources),
    };
  } catch (error) {
    failure.value = error instanceof Error ? error.message : String(error);
  }
}

/** The key of shares: of time where windows come by time, else of loads. */
export function shareKey(m: Model): "time_pct" | "A_pct" {
  return m.trace["by_time"] === true ? "time_pct" : "A_pct";
}

export function shareWord(m: Model): string {
  return shareKey(m) === "time_pct" ? "time" : "loads";
}

const TYPICAL: Cache[] = [
  { name: "L1", bytes: 32 << 10 },
  { name: "L2", bytes: 1 << 20 },
  { name: "L3", bytes: 32 << 20 },
];

/** Caches of the machine; else common ones, which are called so. */
export function caches(m: Model): { list: Cache[]; known: boolean } {
  const rows = objs(m.trace["caches"] ?? m.manifest["caches"]);
  const known = rows
    .map((c) => ({ name: `L${num(c["level"]) ?? "?"}`, bytes: num(c["size"]) ?? 0 }))
    .filter((c) => c.bytes > 0);
  return known.length > 0 ? { list: known, known: true } : { list: TYPICAL, known: false };
}

/** Whether footprints are those of all loads, and so have no intervals. */
export function isComplete(m: Model): boolean {
  return m.trace["mode"] === "full";
}

/** What asks for more windows. */
export function moreWindows(m: Model): string {
  const now = num(m.manifest["overhead"]) ?? 0;
  const more = now > 0 ? Math.min(50, now * 4) : 4;
  return `mgz run --overhead ${Number(more.toPrecision(2))}%`;
}

/** The command line as it was given. Words with blanks are quoted. */
export function command(m: Model): string {
  const given = strs(m.run["command"]);
  return (given.length > 0 ? given : strs(m.trace["command"])).map((w) => (w === "" || /\s/.test(w) ? `'${w.replaceAll("\n", " ↵ ")}'` : w)).join(" ");
}
export const shortFile = (path: string): string => path.split("/").pop() ?? path;
export const placeOf = (file: string, line: number | null): string => (file && line ? `${shortFile(file)}:${line}` : file ? shortFile(file) : "");
export const nameOf = (row: Obj): string => str(row["function"]) || "[unknown]";
