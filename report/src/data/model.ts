// The report's data, read part by part.
import { signal } from "@preact/signals";
import { part } from "./load.ts";
import { measuredOf, type Measured } from "./measured.ts";
import { Table } from "./table.ts";
import { list, num, obj, objs, str, strs, type Obj } from "./values.ts";

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
  /** Functions and lines of Python. */
  python: Obj;
  /** Which places of memory are used together; null where the trace cannot tell. */
  affinity: Obj | null;
  /** Memory samples of the processor; null without any. */
  measured: Measured | null;
  /** Machine code of the lines that were hit most. */
  code: Obj;
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
/** A comparison, or many ranks of one job, instead of one run. */
export const comparison = signal<Obj | null>(null);
export const job = signal<Obj | null>(null);
/** The page comes from `mgz serve`, which analyses selections again. */
export const served = signal(false);
/** The model of the whole run, whatever part of it is shown. */
export const whole = signal<Model | null>(null);

type Get = (name: string) => unknown;

/** The data of the first screen. */
function first(data: Obj): Model {
  const summary = obj(data["summary"]);
  const empty = new Table(null);
  return {
    run: data,
    summary,
    trace: obj(summary["trace"]),
    manifest: obj(data["manifest"]),
    loading: true,
    tables: { functions: empty, lines: empty, loops: empty, objects: empty },
    heat: {},
    time: {},
    location: {},
    paths: {},
    python: {},
    affinity: null,
    measured: null,
    code: {},
    sources: null,
  };
}

/** The rest. */
function filled(start: Model, get: Get): Model {
  const sources = get("sources") ?? null;
  const affinity = get("affinity") ?? null;
  return {
    ...start,
    loading: false,
    tables: { functions: new Table(get("functions")), lines: new Table(get("lines")), loops: new Table(get("loops")), objects: new Table(get("objects")) },
    heat: obj(get("heat_map")),
    time: obj(get("time_zoom")),
    location: obj(get("location_zoom")),
    paths: obj(get("call_paths")),
    python: obj(get("python")),
    affinity: affinity === null ? null : obj(affinity),
    measured: measuredOf(get("measured")),
    code: obj(get("disassembly")),
    sources: sources === null ? null : obj(sources),
  };
}

/** A model of parts that are there already. */
export function modelOf(parts: Obj): Model {
  return filled(first(obj(parts["run"])), (name) => parts[name] ?? null);
}

const PARTS = ["functions", "lines", "loops", "objects", "heat_map", "time_zoom", "location_zoom", "sources", "call_paths", "python", "affinity", "disassembly", "measured"];

/** Reads all parts. */
export async function load(): Promise<void> {
  try {
    const [compared, ranks] = [await part("compare"), await part("ranks")];
    if (compared !== null) {
      comparison.value = obj(compared);
      return;
    }
    if (ranks !== null) {
      job.value = obj(ranks);
      return;
    }
    const run = obj(await part("run"));
    if (Object.keys(run).length === 0) throw new Error("the file holds no data: it is the viewer alone");
    const start = first(run);
    model.value = start;
    // The browser draws that before it unpacks tables of some megabytes.
    await new Promise((r) => setTimeout(r, 0));
    const values = await Promise.all(PARTS.map(part));
    const parts = new Map(PARTS.map((name, i) => [name, values[i]]));
    whole.value = filled(start, (name) => parts.get(name));
    model.value = whole.value;
    served.value = (await part("serve")) !== null;
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

/** Tells whether footprints count all loads and so have no intervals. */
export function isComplete(m: Model): boolean {
  return m.trace["mode"] === "full";
}

/** The advice on how to get more windows. */
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

/** A text as a sentence. */
export const sentence = (v: unknown): string => {
  const text = str(v).replace(/^[a-z]+(?=[\s:,])/, (word) => word[0]!.toUpperCase() + word.slice(1));
  return /[.!?]$/.test(text) || text === "" ? text : `${text}.`;
};

/** Tells whether an object has no name of its own and the run has no heap blocks that could name it. */
export function wantsHeap(m: Model, object: string): boolean {
  const t = m.tables.objects;
  return t.rows > 0 && str(m.trace["heap_impossible"]) === "" && (/^0x[0-9a-f]+/.test(object) || object === "[heap]") && !t.all().some((i) => list(t.value("stack", i)).length > 0);
}
