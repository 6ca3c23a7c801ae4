// Columns and pieces that several views use.
import type { ComponentChildren } from "preact";
import { Classes, Interval, LineUse, Unknown } from "../components/interval.tsx";
import type { Column } from "../components/data-table.tsx";
import { define, Term } from "../components/tip.tsx";
import { isComplete, moreWindows, placeOf, shareKey, shareWord, type Model } from "../data/model.ts";
import type { Table } from "../data/table.ts";
import { list, num, obj, objs, share, triple, type Estimate, type Obj } from "../data/values.ts";
import { base, bytes, count, percent, short } from "../format.ts";
import { go } from "../state.ts";

export const PATTERN = "Which part of the footprint grows by a constant step (strided, blue) and which by addresses that depend on data (irregular, orange).";

/** What the words beside numbers mean: a key of the documentation, or a text. */
const WORDS: Record<string, { k: string } | { text: string }> = {
  "loads seen": { k: "A" },
  "loads recorded": { k: "A" },
  "growth": { k: "dF" },
  "irregular part": { k: "dF_irr_pct" },
  "first touches": { k: "first_pct" },
  "footprint": { k: "F_64_hat" },
  "line use": { k: "line_bytes" },
  "pattern": { text: PATTERN },
  "share of the run": { text: "Of the time that was recorded, or of the loads where no time is known, with its 95 % interval." },
  "size": { text: "Bytes from the first to the last address of the region." },
  "blocks": { text: "Pieces of memory that were touched in the windows." },
  "thread": { text: "System ids of the thread and of its process." },
  "mode": { text: "burst: the program runs at its own speed between windows. ring: one window of each period. full: every load." },
  "windows": { text: "Uninterrupted stretches of the run in which every load of recorded code is kept." },
  "begun by": { text: "The event that begins a window." },
  "cost": { text: "CPU time that recording took from the program, as the recorder estimates it." },
  "state": { text: "complete: nothing is missing. partial or interrupted: the list above says what is." },
  "started": { text: "Begin of the run, UTC." },
  "by": { text: "The program that made the recording." },
};

/** A word with its meaning on hover. */
export function Word({ children }: { children: string }) {
  return <Term {...(WORDS[children] ?? {})}>{children}</Term>;
}

/** The share of a row, with its interval where one is known. */
export function shareOf(m: Model, row: Obj): Estimate {
  return share(row, shareKey(m), isComplete(m), num(m.summary["A_hat"]));
}

const few = (m: Model): string => `Few windows have met this row. More come by: ${moreWindows(m)}`;

export function Share({ m, row, max }: { m: Model; row: Obj; max?: number }) {
  return <Interval e={shareOf(m, row)} max={max ?? 100} show={percent} why={shareOf(m, row).vague ? few(m) : `The share of ${shareWord(m)} is not known for this row.`} />;
}

export function Footprint({ m, row, max }: { m: Model; row: Obj; max: number }) {
  const hat = num(row["F_64_hat"]);
  const e: Estimate = hat === null ? { value: null, lo: num(row["F_64"]), hi: null, vague: false } : { value: hat, lo: num(row["F_64_lo"]), hi: num(row["F_64_hi"]), vague: row["F_undersampled"] === true };
  const times = (x: number | null): number | null => (x === null ? null : x * 64);
  return <Interval e={{ ...e, value: times(e.value), lo: times(e.lo), hi: times(e.hi) }} max={max * 64} show={bytes} why={few(m)} />;
}

/** Misses that are predicted of a row, by level; none where the analysis has none. */
export interface Level {
  level: string;
  ratio: Estimate | null;
  share: Estimate | null;
  count: Estimate | null;
  prefetchable: number | null;
  bytes: number | null;
}

export function missesOf(row: Obj): Level[] {
  return objs(obj(row["misses"])["levels"]).map((l, i) => ({
    level: typeof l["level"] === "string" ? l["level"] : `L${i + 1}`,
    ratio: triple(l["ratio"]),
    share: triple(l["share"]),
    count: triple(l["count"]),
    prefetchable: num(l["prefetchable"]),
    bytes: num(l["size"]),
  }));
}

/** The basis of the predicted misses, if watchpoints saw reuses too. */
export function watchedOf(row: Obj): string {
  const seen = obj(obj(row["misses"])["watched"]);
  return (num(seen["used"]) ?? 0) > 0 ? ` Predicted from ${count(num(seen["windows"]))} windows and ${count(num(seen["reused"]))} reuses seen by watchpoints.` : "";
}

/** A ratio in percent. */
export const hundred = (e: Estimate | null): Estimate => (e === null ? { value: null, lo: null, hi: null } : { value: (e.value ?? 0) * 100, lo: e.lo === null ? null : e.lo * 100, hi: e.hi === null ? null : e.hi * 100 });

/** Columns of numbers that all tables of code and data have. */
export function metricColumns(m: Model, t: Table): Column[] {
  const key = shareKey(m);
  const biggest = Math.max(1e-9, t.greatest("F_64_hat"), t.greatest("F_64"));
  const columns: Column[] = [
    { key, head: shareWord(m), width: 124, bar: true, value: (i) => t.num(key, i), cell: (i) => <Share m={m} row={t.row(i)} /> },
  ];
  const levels = t.has("misses") ? missesOf(t.row(t.find((i) => missesOf(t.row(i)).length > 0))) : [];
  levels.forEach((level, n) => {
    const of = (i: number): Estimate => hundred(missesOf(t.row(i))[n]?.share ?? null);
    columns.push({ key: `misses.${level.level}`, head: `of ${level.level} misses`, tip: `Share of the run's predicted misses at ${level.level}, with its 95 % interval.`, width: 126, bar: true, value: (i) => of(i).value, cell: (i) => <Interval e={of(i)} max={100} show={percent} /> });
  });
  columns.push(
    { key: "line_bytes", head: "line use", width: 84, bar: true, value: (i) => t.num("line_bytes", i), cell: (i) => <LineUse used={t.num("line_bytes", i)} /> },
    { key: "dF_irr_pct", head: "pattern", tip: PATTERN, width: 96, bar: true, value: (i) => t.num("dF_irr_pct", i), cell: (i) => <Classes strided={t.num("dF_str_pct", i)} irregular={t.num("dF_irr_pct", i)} constant={t.num("A_const_pct", i)} /> },
    { key: "F_64_hat", head: "footprint", tip: `${define("F_64")}\nIn bytes: 64 for each line.`, width: 140, bar: true, value: (i) => t.num("F_64_hat", i) ?? t.num("F_64", i), cell: (i) => <Footprint m={m} row={t.row(i)} max={biggest} /> },
    { key: "D_mean", head: isComplete(m) ? "mean D" : "D in window", width: 84, value: (i) => t.num("D_mean", i), cell: (i) => count(t.num("D_mean", i)) },
    { key: "first_pct", head: "first%", width: 54, value: (i) => t.num("first_pct", i), cell: (i) => percent(t.num("first_pct", i)) },
    { key: "A", head: "loads seen", width: 78, value: (i) => t.num("A", i), cell: (i) => count(t.num("A", i)) },
  );
  return columns;
}

/** A link that selects a function, and shows its code. */
export function FunctionLink({ row }: { row: Obj }) {
  const name = typeof row["function"] === "string" ? row["function"] : "";
  const mod = typeof row["module"] === "string" ? row["module"] : undefined;
  const file = typeof row["file"] === "string" ? row["file"] : "";
  const line = num(row["line"]);
  return (
    <a href="#code" title={name} onClick={(e) => { e.preventDefault(); go({ fn: name, mod, file: file || undefined, line: line ? String(line) : undefined, tab: undefined, loop: undefined }, "code"); }}>
      {short(name || "[unknown]", 48)}
      {line ? ` ${placeOf(file, line)}` : ""}
    </a>
  );
}

export function ObjectLink({ name }: { name: string }) {
  return (
    <a href="#data" title={name} onClick={(e) => { e.preventDefault(); go({ obj: name }, "data"); }}>
      {short(base(name), 52)}
    </a>
  );
}

/** Parts of a row (functions, lines, objects): a short list with bars. */
export function Parts({ title, rows, name }: { title: string; rows: unknown; name: (row: Obj) => ComponentChildren }) {
  const parts = objs(rows);
  if (parts.length === 0) return null;
  return (
    <section class="parts">
      <h3 class="minor">{title}</h3>
      <ul>
        {parts.map((p, i) => (
          <li key={i}>
            <span class="parts-name">{name(p)}</span>
            <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
              <rect width={Math.max(0, Math.min(100, num(p["A_pct"]) ?? 0))} height="6" class="bar" />
            </svg>
            <span class="parts-share">{percent(num(p["A_pct"]))}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The commonest steps from one address to the next. */
export function Strides({ rows }: { rows: unknown }) {
  const strides = objs(rows).slice(0, 8);
  if (strides.length === 0) return <Unknown why="No instruction ran twice in a window, so that no step was seen." />;
  const text = (s: Obj): string => {
    const [from, to] = [num(s["from"]), num(s["to"])];
    const sign = (from ?? 0) < 0 ? "−" : "";
    const [a, b] = [Math.abs(from ?? 0), Math.abs(to ?? 0)].sort((x, y) => x - y);
    return a === b ? `${sign}${bytes(a ?? 0)}` : `${sign}${bytes(a ?? 0)} to ${bytes(b ?? 0)}`;
  };
  return (
    <ul class="strides">
      {strides.map((s, i) => (
        <li key={i}>
          <span class="parts-name">{text(s)}</span>
          <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
            <rect width={Math.max(0, Math.min(100, num(s["pct"]) ?? 0))} height="6" class="bar" />
          </svg>
          <span class="parts-share">{percent(num(s["pct"]))}</span>
        </li>
      ))}
    </ul>
  );
}

export interface Bin {
  from: number;
  to: number;
  count: number;
}

export function bins(v: unknown): Bin[] {
  return list(v).map((b) => ({ from: num(obj(b)["from"]) ?? 0, to: num(obj(b)["to"]) ?? 0, count: num(obj(b)["count"]) ?? 0 }));
}

/** A panel with a heading. */
export function Panel({ title, note, children, cls }: { title: string; note?: string; cls?: string; children: ComponentChildren }) {
  return (
    <section class={`panel ${cls ?? ""}`}>
      <h2>{title}</h2>
      {note && <p class="note">{note}</p>}
      {children}
    </section>
  );
}
